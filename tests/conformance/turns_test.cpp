// Conversations: prompts fused after present rows, and fusions saved and restored.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>

#include "conformance/expect.h"
#include "conformance/random_prompt.h"
#include "support/temp_dir.h"

namespace blend::test {
namespace {

constexpr size_t kMaxRows = 100;  // the reference is slow

class Turns : public testing::TestWithParam<int> {
 protected:
  Turns()
      : rng_(0x7a31c0d5u * static_cast<uint64_t>(GetParam() + 1)),
        spec_(random_spec(rng_)),
        path_(write_random_model(spec_, dir_.file("model.gguf"))),
        ctx_(make_ctx()),
        model_(open_model(ctx_, path_)),
        store_(open_store(ctx_, dir_.file("store"))) {}

  std::vector<int32_t> some_tokens(size_t n) { return random_tokens(rng_, spec_.n_vocab, n); }
  // Fuses that are compared must not differ by what they found in the store.
  FuseCase some_policy(const RandomPrompt& random) {
    FuseCase how{.policy = spec_.n_layers > 1 ? BLEND_POLICY_HKVD : BLEND_POLICY_REUSE,
                 .ratio = 0.3};
    how.chunk_prefix = random.chunk_prefix;
    how.reserve_tokens = static_cast<uint32_t>(rng_.below(3));  // so that the cache has to grow
    return how;
  }
  // A prompt that may follow another: nothing of it stands only at a start.
  RandomPrompt next_turn() {
    RandomPrompt random = random_prompt(rng_, spec_.n_vocab, kMaxRows);
    std::erase_if(random.prompt, [](const auto& s) { return s.kind == BLEND_SEGMENT_PREFIX; });
    random.prompt.push_back({BLEND_SEGMENT_TEXT, some_tokens(3), false});
    std::stable_partition(random.prompt.begin(), random.prompt.end(),
                          [](const auto& s) { return s.kind != BLEND_SEGMENT_QUESTION; });
    return random;
  }

  TempDir dir_;
  SplitMix rng_;
  RandomModelSpec spec_;
  std::string path_;
  Ctx ctx_;
  Model model_;
  Store store_;
};

// Rows that are there are seen as new text is: the reference computes them so in one prompt.
TEST_P(Turns, ATurnIsFusedAsBehindText) {
  const ReferenceModel reference(path_);
  const std::vector<int32_t> before = some_tokens(1 + rng_.below(30));
  const RandomPrompt next = next_turn();
  FuseCase how = some_policy(next);

  const Fusion fusion =
      fuse(model_, store_, {{BLEND_SEGMENT_TEXT, before, false}},
           {.policy = BLEND_POLICY_FULL, .reserve_tokens = static_cast<uint32_t>(rng_.below(40))});
  ASSERT_TRUE(fusion);
  const Outcome extended = try_extend(fusion, store_, next.prompt, how);
  ASSERT_EQ(extended.code, BLEND_OK) << extended.message;

  Prompt whole = {{BLEND_SEGMENT_TEXT, before, false}};
  whole.insert(whole.end(), next.prompt.begin(), next.prompt.end());
  ReferenceFuseOptions options = reference_options(how, DType::f32);
  options.forced_selection = selected(fusion);
  ReferenceFusion want = reference_fuse(reference, whole, options);
  EXPECT_LE(max_difference(logits(fusion), want.logits), kLogitTolerance);
  EXPECT_LE(max_difference(deviation(fusion), want.deviation), 1e-3);
  EXPECT_EQ(tokens_of(fusion), flatten(whole));

  const blend_fusion_report i = info(fusion);
  EXPECT_EQ(i.n_rows, want.n_rows);
  EXPECT_EQ(i.n_rows_resident, before.size());
  EXPECT_EQ(i.n_rows_reused, want.n_reused);
  EXPECT_EQ(i.n_segments, whole.size());
  for (size_t s = 0, row = 0; s < whole.size(); ++s) {
    EXPECT_EQ(segment_info(fusion, s).first_row, row);
    EXPECT_EQ(segment_info(fusion, s).n_rows, whole[s].tokens.size());
    EXPECT_EQ(segment_info(fusion, s).exact, want.exact[s]) << "segment " << s;
    row += whole[s].tokens.size();
  }
  // One fuse of the whole chooses the same rows, and decoding goes on alike.
  const Fusion once = fuse(model_, store_, whole, how);
  EXPECT_EQ(selected(fusion), selected(once));
  const std::vector<int32_t> said = some_tokens(how.reserve_tokens);
  decode(fusion, said);
  decode(once, said);
  EXPECT_LE(max_difference(logits(fusion), logits(once)), kLogitTolerance);
}

// The report keeps a first turn's choice, and the rows decoded after it.
TEST_P(Turns, TheAccountOfEarlierTurnsStays) {
  const RandomPrompt first = random_prompt(rng_, spec_.n_vocab, kMaxRows);
  const RandomPrompt next = next_turn();
  FuseCase how = some_policy(first);
  how.reserve_tokens = 8;
  const Fusion fusion = fuse(model_, store_, first.prompt, how);
  ASSERT_TRUE(fusion);
  const std::vector<uint32_t> selected_before = selected(fusion);
  const std::vector<float> deviation_before = deviation(fusion);
  decode(fusion, {7, 8, 9});
  how.chunk_prefix = next.chunk_prefix;
  const size_t n_before = tokens_of(fusion).size();
  ASSERT_EQ(try_extend(fusion, store_, next.prompt, how).code, BLEND_OK);

  std::vector<uint32_t> selected_now = selected(fusion);
  const auto added = std::lower_bound(selected_now.begin(), selected_now.end(), n_before);
  EXPECT_EQ(static_cast<uint64_t>(selected_now.end() - added), info(fusion).n_rows_selected);
  selected_now.erase(added, selected_now.end());
  EXPECT_EQ(selected_now, selected_before);
  std::vector<float> deviation_now = deviation(fusion);
  EXPECT_EQ(deviation_now.size(), tokens_of(fusion).size());
  deviation_now.resize(deviation_before.size());
  EXPECT_EQ(deviation_now, deviation_before);
  EXPECT_EQ(segment_info(fusion, first.prompt.size()).first_row, n_before);
}

TEST_P(Turns, ATurnThatFailsChangesNothing) {
  const RandomPrompt first = random_prompt(rng_, spec_.n_vocab, kMaxRows);
  FuseCase how = some_policy(first);
  how.reserve_tokens = 4;
  const Fusion fusion = fuse(model_, store_, first.prompt, how);
  const Fusion twin = fuse(model_, store_, first.prompt, how);
  ASSERT_TRUE(fusion && twin);
  const std::vector<float> before = logits(fusion);

  const auto expect = [&](int32_t code, const Prompt& prompt, const FuseCase& with,
                          const Cancel& cancel = nullptr) {
    const Outcome o = try_extend(fusion, store_, prompt, with, cancel);
    EXPECT_EQ(o.code, code) << o.message;
    EXPECT_EQ(logits(fusion), before);
    EXPECT_EQ(tokens_of(fusion), tokens_of(twin));
  };
  const Prompt chunk = {{BLEND_SEGMENT_CHUNK, some_tokens(20), false}};
  expect(BLEND_E_INVALID_ARGUMENT, {}, how);
  expect(BLEND_E_INVALID_ARGUMENT, {{BLEND_SEGMENT_PREFIX, some_tokens(3), false}}, how);
  expect(BLEND_E_INVALID_ARGUMENT, {{BLEND_SEGMENT_TEXT, {-1}, false}}, how);
  expect(BLEND_E_CONTEXT_LENGTH, {{BLEND_SEGMENT_TEXT, some_tokens(spec_.context), false}}, how);
  FuseCase strict = how;
  strict.on_miss = BLEND_MISS_FAIL;
  expect(BLEND_E_NOT_FOUND, chunk, strict);
  blend_cancel* raw = nullptr;
  ASSERT_EQ(blend_cancel_create(&raw, nullptr), BLEND_OK);
  const Cancel cancel(raw);
  blend_cancel_request(raw);
  expect(BLEND_E_CANCELLED, {{BLEND_SEGMENT_TEXT, some_tokens(30), false}}, how, cancel);

  ASSERT_EQ(try_extend(fusion, store_, chunk, how).code, BLEND_OK);
  ASSERT_EQ(try_extend(twin, store_, chunk, how).code, BLEND_OK);
  EXPECT_LE(max_difference(logits(fusion), logits(twin)), kLogitTolerance);
}

class Saved : public Turns {
 protected:
  blend_chunk_id save(const Fusion& fusion) {
    blend_chunk_id id{};
    blend_error* error = nullptr;
    int32_t code = blend_fusion_save(fusion.get(), store_.get(), nullptr, nullptr, &id, &error);
    EXPECT_EQ(outcome(code, error).message, "");
    code = blend_store_flush(store_.get(), &error);
    EXPECT_EQ(outcome(code, error).message, "");
    return id;
  }
  Fused restore(const blend_chunk_id& id, const Model& model) {
    blend_fusion* fusion = nullptr;
    blend_error* error = nullptr;
    const int32_t code =
        blend_fusion_restore(&fusion, model.get(), store_.get(), &id, nullptr, 8, nullptr, &error);
    return {outcome(code, error), Fusion(fusion)};
  }
};

// A conversation that is put away between its turns goes on as if it had not been.
TEST_P(Saved, IsAsItWas) {
  const RandomPrompt random = random_prompt(rng_, spec_.n_vocab, kMaxRows);
  FuseCase how = some_policy(random);
  how.reserve_tokens = 8;
  Fusion fusion = fuse(model_, store_, random.prompt, how);
  ASSERT_TRUE(fusion);
  decode(fusion, {7, 8});
  Fused back = restore(save(fusion), model_);
  ASSERT_TRUE(back.fusion) << back.outcome.message;
  EXPECT_EQ(tokens_of(back.fusion), tokens_of(fusion));
  EXPECT_EQ(info(back.fusion).flags, BLEND_FUSION_RESTORED);
  EXPECT_EQ(info(back.fusion).n_rows_resident, tokens_of(fusion).size());
  // K was turned back and forth once: rounding.
  EXPECT_LE(max_difference(logits(back.fusion), logits(fusion)), kLogitTolerance);
  const RandomPrompt next = next_turn();
  how.chunk_prefix = next.chunk_prefix;
  ASSERT_EQ(try_extend(fusion, store_, next.prompt, how).code, BLEND_OK);
  ASSERT_EQ(try_extend(back.fusion, store_, next.prompt, how).code, BLEND_OK);
  EXPECT_LE(max_difference(logits(back.fusion), logits(fusion)), kLogitTolerance);
  decode(fusion, {3});
  decode(back.fusion, {3});
  EXPECT_LE(max_difference(logits(back.fusion), logits(fusion)), kLogitTolerance);
}

// An approximate cache must never be found as the chunk of the same tokens.
TEST_P(Saved, IsNotAChunk) {
  const std::vector<int32_t> tokens = some_tokens(12);
  const Fusion fusion =
      fuse(model_, store_, {{BLEND_SEGMENT_TEXT, tokens, false}}, {.policy = BLEND_POLICY_FULL});
  const blend_chunk_id saved = save(fusion);
  blend_chunk_id chunk{};
  EXPECT_EQ(precompute(model_, store_, tokens, {}, &chunk), BLEND_OK);
  EXPECT_FALSE(std::equal(std::begin(saved.bytes), std::end(saved.bytes), chunk.bytes));
  blend_error* error = nullptr;
  blend_chunk_id other{};
  EXPECT_EQ(blend_fusion_save(fusion.get(), store_.get(), "tenant", nullptr, &other, &error),
            BLEND_OK);
  EXPECT_FALSE(std::equal(std::begin(saved.bytes), std::end(saved.bytes), other.bytes));
}

TEST_P(Saved, IsRefusedWhereItDoesNotFit) {
  const Fusion fusion = fuse(model_, store_, {{BLEND_SEGMENT_TEXT, some_tokens(40), false}},
                             {.policy = BLEND_POLICY_FULL});
  const blend_chunk_id id = save(fusion);
  blend_chunk_id nobody = id;
  nobody.bytes[3] ^= 1;
  EXPECT_EQ(restore(nobody, model_).outcome.code, BLEND_E_NOT_FOUND);
  RandomModelSpec twin = spec_;
  twin.seed += 1;
  const Model other = open_model(ctx_, write_random_model(twin, dir_.file("other.gguf")));
  EXPECT_EQ(restore(id, other).outcome.code, BLEND_E_MISMATCH);
}

// Bytes that were damaged while nobody had the store open are an error, which the log is told,
// never a conversation that was not held.
TEST_P(Saved, IsRefusedWhenDamaged) {
  LogCount log;
  ctx_ = make_ctx(2, &log);
  model_ = open_model(ctx_, path_);
  const std::string path = dir_.file("damaged");
  store_ = open_store(ctx_, path);
  const Fusion fusion = fuse(model_, store_, {{BLEND_SEGMENT_TEXT, some_tokens(200), false}},
                             {.policy = BLEND_POLICY_FULL});
  const blend_chunk_id id = save(fusion);
  store_.reset();
  // Pages of the one payload: the run of LMDB's overflow pages that is longer than any of the rest.
  std::string bytes;
  {
    std::ifstream in(path + "/data.mdb", std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
  }
  ASSERT_GT(bytes.size(), size_t{4096} * 8);
  uint32_t page = 0;  // bytes of one: the file's first says it
  std::memcpy(&page, &bytes[40], sizeof page);
  for (size_t at = 2 * size_t{page}; at + page <= bytes.size(); at += page) {
    uint16_t flags = 0;
    uint32_t run = 0;
    std::memcpy(&flags, &bytes[at + 10], sizeof flags);
    std::memcpy(&run, &bytes[at + 12], sizeof run);
    if (flags == 4 && run > 1 && at + run * size_t{page} <= bytes.size()) {
      bytes[at + run * size_t{page} / 2] ^= 0x10;
      at += (run - 1) * size_t{page};
    }
  }
  write_file(path + "/data.mdb", bytes);
  store_ = open_store(ctx_, path);
  EXPECT_EQ(restore(id, model_).outcome.code, BLEND_E_CORRUPT);
  EXPECT_GT(log.n.load(), 0);
  EXPECT_EQ(log.last_code.load(), BLEND_E_CORRUPT);
}

INSTANTIATE_TEST_SUITE_P(Seeds, Turns, testing::Range(0, 12));
INSTANTIATE_TEST_SUITE_P(Seeds, Saved, testing::Range(0, 6));

}  // namespace
}  // namespace blend::test
