// A batch of prompts: each fusion is that of its own fuse, bit for bit; what they share is loaded
// and computed once; one that fails leaves the others alone.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "conformance/expect.h"
#include "conformance/random_prompt.h"
#include "support/temp_dir.h"

namespace blend::test {
namespace {

struct BatchResult {
  Outcome outcome;
  std::vector<Fusion> fusions;
  std::vector<Outcome> errors;
};

// `options`: [prompts], or one for all.
BatchResult fuse_batch(const Model& model, const Store& store, const std::vector<Prompt>& prompts,
                       const std::vector<blend_fuse_options>& options, bool per_prompt = true) {
  std::vector<std::vector<blend_segment>> segments;
  std::vector<blend_fuse_request> requests(prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    segments.push_back(segments_of(prompts[i]));
    requests[i] = blend_fuse_request{}, requests[i].struct_size = sizeof requests[i];
    requests[i].segments = segments[i].data();
    requests[i].n_segments = segments[i].size();
    requests[i].options = &options[options.size() == 1 ? 0 : i];
  }
  // What is there before must not stay.
  std::vector<blend_fusion*> out(prompts.size(), reinterpret_cast<blend_fusion*>(&requests));
  std::vector<blend_error*> errors(prompts.size(), reinterpret_cast<blend_error*>(&requests));
  blend_error* error = nullptr;
  const int32_t code =
      blend_fuse_batch(out.data(), per_prompt ? errors.data() : nullptr, model.get(), store.get(),
                       requests.data(), requests.size(), &error);
  BatchResult result{outcome(code, error), {}, {}};
  for (size_t i = 0; i < prompts.size(); ++i) {
    result.fusions.emplace_back(out[i]);
    if (!per_prompt) continue;
    EXPECT_NE(out[i] == nullptr, errors[i] == nullptr) << "a fusion or an error: " << i;
    result.errors.push_back(outcome(blend_error_code(errors[i]), errors[i]));
  }
  return result;
}

// The batch's fusion and the prompt's own are the same to the last bit, decode included.
void expect_same(const Fusion& batched, const Fusion& alone, const std::string& name) {
  ASSERT_TRUE(batched && alone) << name;
  EXPECT_EQ(logits(batched), logits(alone)) << name;
  EXPECT_EQ(deviation(batched), deviation(alone)) << name;
  EXPECT_EQ(selected(batched), selected(alone)) << name;
  const blend_fusion_report a = info(batched), b = info(alone);
  EXPECT_EQ(a.bytes_loaded + a.bytes_shared, b.bytes_loaded + b.bytes_shared) << name;
  EXPECT_EQ(a.n_rows_selected, b.n_rows_selected) << name;
  EXPECT_EQ(a.n_rows_exact, b.n_rows_exact) << name;
  EXPECT_EQ(a.flags, b.flags) << name;
  for (size_t s = 0; s < a.n_segments; ++s) {
    const blend_segment_info x = segment_info(batched, s), y = segment_info(alone, s);
    EXPECT_EQ(x.n_rows_selected, y.n_rows_selected) << name << ", segment " << s;
    EXPECT_EQ(x.exact, y.exact) << name << ", segment " << s;
  }
  decode(batched, {5, 6});
  decode(alone, {5, 6});
  EXPECT_EQ(logits(batched), logits(alone)) << name << ", decoded";
}

const FuseCase kUsual;  // options_of() points into it

class Batch : public testing::Test {
 protected:
  Batch() {
    spec_.context = 1024;
    path_ = write_random_model(spec_, dir_.file("model.gguf"));
    ctx_ = make_ctx(2, &log_);
    model_ = open_model(ctx_, path_);
    store_ = open_store(ctx_, dir_.file("store"));
    SplitMix rng(5);
    for (int i = 0; i < 6; ++i) chunks_.push_back(random_tokens(rng, spec_.n_vocab, 40));
    for (int i = 0; i < 6; ++i) questions_.push_back(random_tokens(rng, spec_.n_vocab, 7));
  }
  Prompt prompt(const std::vector<size_t>& chunks, size_t question) const {
    Prompt p;
    for (const size_t c : chunks) p.push_back({BLEND_SEGMENT_CHUNK, chunks_[c]});
    p.push_back({BLEND_SEGMENT_QUESTION, questions_[question]});
    return p;
  }
  void precompute_chunks() {
    for (const auto& chunk : chunks_) precompute(model_, store_, chunk);
  }
  blend_store_report stat() const {
    blend_store_report s{};
    s.struct_size = sizeof s;
    EXPECT_EQ(blend_store_get_report(store_.get(), &s, nullptr), BLEND_OK);
    return s;
  }

  TempDir dir_;
  RandomModelSpec spec_;
  std::string path_;
  LogCount log_;
  Ctx ctx_;
  Model model_;
  Store store_;
  std::vector<std::vector<int32_t>> chunks_, questions_;
};

TEST_F(Batch, EachFusionIsThatOfItsOwnFuseUnderEveryPolicy) {
  precompute_chunks();
  const std::vector<Prompt> prompts = {prompt({0, 1, 2}, 0), prompt({2, 1, 2}, 1),
                                       prompt({3}, 2),       prompt({4, 5}, 3),
                                       prompt({1, 3, 0}, 4), prompt({5, 4, 3, 2}, 5)};
  const std::vector<FuseCase> measuring = {
      {.policy = BLEND_POLICY_HKVD},
      {.policy = BLEND_POLICY_HKVD, .metric = BLEND_METRIC_KV, .check_layer = 2, .ratio = 0.4},
      {.policy = BLEND_POLICY_FULL},
      {.policy = BLEND_POLICY_FIRST_K, .ratio = 0.2},
      {.policy = BLEND_POLICY_QUESTION, .ratio = 0.3},
      {.policy = BLEND_POLICY_REUSE}};
  FuseCase joined{.policy = BLEND_POLICY_UNION, .ratio = 0.3};
  joined.terms = {{BLEND_POLICY_APE, 1.0}, {BLEND_POLICY_CONTEXT_IMPACT, 1.0}};
  FuseCase gradual{.policy = BLEND_POLICY_HKVD};
  gradual.check_layers = {{1, 0.5}, {2, 0.2}};
  const std::vector<FuseCase> remembering = {
      {.policy = BLEND_POLICY_HKVD, .metric = BLEND_METRIC_V_WEIGHED},
      {.policy = BLEND_POLICY_CONTEXT_IMPACT, .ratio = 0.3},
      {.policy = BLEND_POLICY_APE},
      {.policy = BLEND_POLICY_RANDOM, .seed = 3},
      joined,
      gradual};
  // Those that probe ask for layers 0 and 1 when others do.
  const std::vector<FuseCase> probing = {{.policy = BLEND_POLICY_CASCADE, .ratio = 0.2},
                                         {.policy = BLEND_POLICY_HKVD},
                                         {.policy = BLEND_POLICY_PROBE, .ratio = 0.2},
                                         {.policy = BLEND_POLICY_REUSE},
                                         {.policy = BLEND_POLICY_FULL},
                                         {.policy = BLEND_POLICY_CASCADE, .ratio = 0}};
  const std::vector<FuseCase> asking = {{.policy = BLEND_POLICY_ATTENTION, .ratio = 0.2},
                                        {.policy = BLEND_POLICY_CASCADE, .ratio = 0.2},
                                        {.policy = BLEND_POLICY_ATTENTION, .ratio = 0.5},
                                        {.policy = BLEND_POLICY_HKVD},
                                        {.policy = BLEND_POLICY_ATTENTION, .ratio = 0},
                                        {.policy = BLEND_POLICY_ATTENTION, .ratio = 1}};
  for (const std::vector<FuseCase>& cases : {measuring, remembering, probing, asking}) {
    std::vector<blend_fuse_options> options;
    for (const FuseCase& c : cases) options.push_back(options_of(c));
    const BatchResult batch = fuse_batch(model_, store_, prompts, options);
    ASSERT_EQ(batch.outcome.code, BLEND_OK) << batch.outcome.message;
    for (size_t i = 0; i < prompts.size(); ++i) {
      expect_same(batch.fusions[i], fuse(model_, store_, prompts[i], cases[i]),
                  "prompt " + std::to_string(i));
    }
  }
}

TEST_F(Batch, RandomPromptsToo) {
  SplitMix rng(31);
  std::vector<RandomPrompt> random;
  while (random.size() < 5) {
    RandomPrompt p = random_prompt(rng, spec_.n_vocab, 250);
    if (p.prompt.size() > 2) random.push_back(std::move(p));
  }
  random.push_back(random.front());  // the same prompt twice
  std::vector<Prompt> prompts;
  std::vector<FuseCase> cases(random.size());
  std::vector<blend_fuse_options> options;
  for (size_t i = 0; i < random.size(); ++i) {
    prompts.push_back(random[i].prompt);
    cases[i].ratio = 0.25;
    cases[i].chunk_prefix = random[i].chunk_prefix;
    options.push_back(options_of(cases[i]));
  }
  const BatchResult batch = fuse_batch(model_, store_, prompts, options);
  ASSERT_EQ(batch.outcome.code, BLEND_OK) << batch.outcome.message;
  ASSERT_EQ(blend_store_flush(store_.get(), nullptr), BLEND_OK);
  for (size_t i = 0; i < prompts.size(); ++i) {
    const Fusion alone = fuse(model_, store_, prompts[i], cases[i]);
    ASSERT_TRUE(batch.fusions[i] && alone);
    EXPECT_EQ(logits(batch.fusions[i]), logits(alone)) << i;
  }
}

TEST_F(Batch, WhatPromptsShareIsLoadedOnce) {
  precompute_chunks();
  const std::vector<Prompt> prompts = {prompt({0, 1, 2}, 0), prompt({1, 2, 0}, 1),
                                       prompt({3, 1}, 2)};
  const std::vector<blend_fuse_options> options = {options_of(kUsual)};
  const BatchResult batch = fuse_batch(model_, store_, prompts, options);
  ASSERT_EQ(batch.outcome.code, BLEND_OK);
  uint64_t read = 0, used = 0;
  for (const Fusion& f : batch.fusions) {
    read += info(f).bytes_loaded;
    used += info(f).bytes_loaded + info(f).bytes_shared;
  }
  const uint64_t layer = 2ull * 40 * spec_.n_kv_heads * spec_.head_dim * 4;
  // Chunks 0, 1 and 3 are exact somewhere, so needed from layer 0; chunk 2 from layer 1.
  EXPECT_EQ(read, layer * (3 * spec_.n_layers + spec_.n_layers - 1));
  EXPECT_EQ(used, layer * (3 * spec_.n_layers + 5 * (spec_.n_layers - 1)));
  // The layers' accounts say the same.
  for (uint32_t l = 0; l < spec_.n_layers; ++l) {
    uint64_t bytes = 0;
    for (const Fusion& f : batch.fusions) bytes += layer_info(f, l).bytes_loaded;
    EXPECT_EQ(bytes, layer * (l == 0 ? 3 : 4)) << l;
  }
}

TEST_F(Batch, OnePromptThatHasAChunkTwiceLoadsItOnce) {
  precompute_chunks();
  const Fusion f = fuse(model_, store_, prompt({0, 1, 1}, 0), {});
  const blend_fusion_report i = info(f);
  const uint64_t layer = 2ull * 40 * spec_.n_kv_heads * spec_.head_dim * 4;
  EXPECT_EQ(i.bytes_loaded, layer * (2 * spec_.n_layers - 1));
  EXPECT_EQ(i.bytes_shared, layer * (spec_.n_layers - 1));
}

TEST_F(Batch, AMissingChunkIsPrefilledOnce) {
  const std::vector<Prompt> prompts = {prompt({0, 1}, 0), prompt({1, 0}, 1), prompt({0, 0}, 2)};
  const BatchResult batch = fuse_batch(model_, store_, prompts, {options_of(kUsual)});
  ASSERT_EQ(batch.outcome.code, BLEND_OK);
  ASSERT_EQ(blend_store_flush(store_.get(), nullptr), BLEND_OK);
  EXPECT_EQ(stat().written, 2u);
  for (size_t i = 0; i < prompts.size(); ++i) {
    expect_same(batch.fusions[i], fuse(model_, store_, prompts[i], {}), std::to_string(i));
  }
}

TEST_F(Batch, AFailureIsItsOwnPromptsAlone) {
  precompute_chunks();
  std::vector<Prompt> prompts = {prompt({0, 1}, 0), prompt({1, 2}, 1), prompt({2, 0}, 2),
                                 prompt({3, 1}, 3), prompt({1, 4}, 4)};
  prompts[1][0].tokens[3] = 1 << 30;  // outside the vocabulary
  const Cancel cancel = [] {
    blend_cancel* c = nullptr;
    EXPECT_EQ(blend_cancel_create(&c, nullptr), BLEND_OK);
    blend_cancel_request(c);
    return Cancel(c);
  }();
  std::vector<blend_fuse_options> options(5, options_of(kUsual));
  options[2].ratio = 7;
  options[3].progress = [](void*, uint64_t done, uint64_t) -> int32_t {
    return done == 2 ? 41 : 0;  // in the middle of the layers
  };
  options[4].cancel = cancel.get();
  const BatchResult batch = fuse_batch(model_, store_, prompts, options);
  EXPECT_EQ(batch.outcome.code, BLEND_PARTIAL);
  EXPECT_EQ(batch.errors[0].code, BLEND_OK);
  EXPECT_EQ(batch.errors[1].code, BLEND_E_INVALID_ARGUMENT);
  EXPECT_NE(batch.errors[1].message.find("segment 0"), std::string::npos);
  EXPECT_EQ(batch.errors[2].code, BLEND_E_INVALID_ARGUMENT);
  EXPECT_EQ(batch.errors[3].code, BLEND_E_CALLBACK);
  EXPECT_EQ(batch.errors[3].detail, 41);
  EXPECT_EQ(batch.errors[4].code, BLEND_E_CANCELLED);
  expect_same(batch.fusions[0], fuse(model_, store_, prompts[0], {}), "the sound one");

  // Without a place for their errors it is all or nothing. Options are judged before any prompt is
  // looked up, so the ratio is found first.
  const BatchResult none = fuse_batch(model_, store_, prompts, options, false);
  EXPECT_EQ(none.outcome.code, BLEND_E_INVALID_ARGUMENT);
  EXPECT_NE(none.outcome.message.find("request 2"), std::string::npos) << none.outcome.message;
  for (const Fusion& f : none.fusions) EXPECT_EQ(f, nullptr);
  const BatchResult late =
      fuse_batch(model_, store_, {prompts[0], prompts[3]}, {options[0], options[3]}, false);
  EXPECT_EQ(late.outcome.code, BLEND_E_CALLBACK);
  EXPECT_EQ(late.fusions[0], nullptr);
  const BatchResult all = fuse_batch(model_, store_, {prompts[0], prompts[0]}, {options[0]}, false);
  EXPECT_EQ(all.outcome.code, BLEND_OK);
  EXPECT_NE(all.fusions[1], nullptr);
}

// Bytes of a shared chunk change on the disk: one event, and every prompt that has it is mended.
TEST_F(Batch, ADamagedChunkIsAMissOfEveryPromptThatHasIt) {
  precompute_chunks();
  const std::vector<Prompt> prompts = {prompt({0, 1}, 0), prompt({2, 1, 1}, 1), prompt({3}, 2)};
  std::vector<std::vector<float>> sound;
  for (const Prompt& p : prompts) sound.push_back(logits(fuse(model_, store_, p, {})));
  const Fusion fused = fuse(model_, store_, prompt({1, 0}, 0), {});
  const blend_chunk_id id = segment_info(fused, 0).id;
  store_.reset();

  const std::string file = dir_.file("store") + "/data.mdb";
  std::string bytes;
  {
    std::ifstream in(file, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
  }
  // Key of the chunk's first piece: id, then 0 in big-endian.
  std::string key(reinterpret_cast<const char*>(id.bytes), sizeof id.bytes);
  key.append(4, '\0');
  const size_t at = bytes.find(key);
  ASSERT_NE(at, std::string::npos);
  store_ = open_store(ctx_, dir_.file("store"));
  const int before = log_.n;
  {
    // LMDB keeps a large value on pages of its own, whose number follows the key.
    uint64_t page = 0;
    uint32_t page_bytes = 0;  // the file's first page says it
    std::memcpy(&page, bytes.data() + at + key.size(), sizeof page);
    std::memcpy(&page_bytes, bytes.data() + 40, sizeof page_bytes);
    std::fstream out(file, std::ios::binary | std::ios::in | std::ios::out);
    const size_t layer = 2ull * 40 * spec_.n_kv_heads * spec_.head_dim * 4;
    const size_t offset = page * page_bytes + 16 + 2 * layer + 9;  // in layer 2
    ASSERT_LT(offset, bytes.size());
    out.seekp(static_cast<std::streamoff>(offset));
    const char flipped = static_cast<char>(bytes[offset] ^ 0x10);
    out.write(&flipped, 1);
  }
  const BatchResult batch = fuse_batch(model_, store_, prompts, {options_of(kUsual)});
  ASSERT_EQ(batch.outcome.code, BLEND_OK) << batch.outcome.message;
  EXPECT_EQ(log_.n, before + 1);
  EXPECT_EQ(stat().damaged, 1u);
  for (size_t i = 0; i < prompts.size(); ++i) EXPECT_EQ(logits(batch.fusions[i]), sound[i]) << i;
  EXPECT_EQ(segment_info(batch.fusions[0], 1).source, BLEND_SOURCE_PRECOMPUTED);
  EXPECT_EQ(segment_info(batch.fusions[1], 2).source, BLEND_SOURCE_PRECOMPUTED);
  EXPECT_EQ(segment_info(batch.fusions[2], 0).source, BLEND_SOURCE_STORE);
}

TEST_F(Batch, EveryNanosecondIsAccountedFor) {
  precompute_chunks();
  const BatchResult batch =
      fuse_batch(model_, store_, {prompt({0, 1}, 0), prompt({2, 3}, 1)}, {options_of(kUsual)});
  for (const Fusion& f : batch.fusions) {
    const blend_fusion_report i = info(f);
    EXPECT_EQ(i.ttft_ns, i.plan_ns + i.miss_ns + i.prepare_ns + i.wait_ns + i.place_ns +
                             i.select_ns + i.compute_ns + i.other_ns);
    EXPECT_GE(i.ring_depth, 2u);
    EXPECT_GT(i.prepare_ns, 0u);
    uint64_t select = 0, stall = 0;
    for (uint32_t l = 0; l < spec_.n_layers; ++l) {
      const blend_layer_info layer = layer_info(f, l);
      select += layer.select_ns;
      stall += layer.stall_ns;
      EXPECT_EQ(layer.select_ns > 0, l == 1) << l;
    }
    EXPECT_EQ(select, i.select_ns);
    EXPECT_EQ(stall, i.stall_ns);
  }
  // While the others have their turn, this one's clock runs.
  EXPECT_GT(info(batch.fusions[0]).other_ns, info(batch.fusions[0]).plan_ns);
}

TEST_F(Batch, BadArgumentsAreRefused) {
  const auto call = [&](blend_fusion** out, const blend_fuse_request* requests, size_t n) {
    blend_error* error = nullptr;
    const int32_t code = blend_fuse_batch(out, nullptr, model_.get(), nullptr, requests, n, &error);
    return outcome(code, error).code;
  };
  blend_fusion* out[2] = {};
  EXPECT_EQ(call(nullptr, nullptr, 0), BLEND_E_INVALID_ARGUMENT);
  EXPECT_EQ(call(out, nullptr, 2), BLEND_E_INVALID_ARGUMENT);
  EXPECT_EQ(call(out, nullptr, 0), BLEND_OK);
  blend_fuse_request requests[2];
  for (auto& r : requests) r = blend_fuse_request{}, r.struct_size = sizeof r;
  EXPECT_EQ(call(out, requests, 2), BLEND_E_INVALID_ARGUMENT);  // prompts without a segment
  requests[1].struct_size += 8;
  EXPECT_EQ(call(out, requests, 2), BLEND_E_INVALID_STRUCT);
}

}  // namespace
}  // namespace blend::test
