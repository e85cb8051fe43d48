// LoRA adapters through the C ABI: a model with an adapter computes what the float64 reference
// makes of the same weights with the adapter merged into them, and its chunks are its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "conformance/expect.h"
#include "conformance/random_prompt.h"
#include "support/hf_writer.h"
#include "support/lora_writer.h"
#include "support/temp_dir.h"

namespace blend::test {
namespace {

struct Adapter {
  std::string path;
  double scale = 0;
};

Outcome try_open_with(const Ctx& ctx, const std::string& path, const std::vector<Adapter>& adapters,
                      uint32_t weights, Model& out) {
  blend_model_options options;
  EXPECT_EQ(blend_model_options_init(&options, sizeof options), BLEND_OK);
  std::vector<blend_lora> loras;
  for (const Adapter& a : adapters)
    loras.push_back({sizeof(blend_lora), 0, a.path.c_str(), a.scale});
  options.weights = weights;
  options.loras = loras.data();
  options.n_loras = loras.size();
  blend_model* model = nullptr;
  blend_error* error = nullptr;
  const int32_t code = blend_model_open(&model, ctx.get(), path.c_str(), &options, &error);
  out = Model(model);
  return outcome(code, error);
}

Model open_with(const Ctx& ctx, const std::string& path, const std::vector<Adapter>& adapters,
                uint32_t weights = BLEND_WEIGHTS_AUTO) {
  Model model;
  const Outcome said = try_open_with(ctx, path, adapters, weights, model);
  EXPECT_EQ(said.code, BLEND_OK) << said.message;
  return model;
}

// Those that take adapters, or not.
std::vector<RandomFamily> families(bool adapted) {
  std::vector<RandomFamily> all = random_families();
  const auto refused = [](const RandomModelSpec& s) { return s.scans() || s.latent_rank != 0; };
  std::erase_if(all, [&](const RandomFamily& f) { return refused(f.spec) == adapted; });
  return all;
}

std::vector<uint8_t> fingerprint(const Model& model) {
  blend_model_info info{};
  info.struct_size = sizeof info;
  EXPECT_EQ(blend_model_get_info(model.get(), &info, nullptr), BLEND_OK);
  return {info.fingerprint, info.fingerprint + sizeof info.fingerprint};
}

Prompt random_parts(const RandomModelSpec& spec) {
  SplitMix rng(spec.seed);
  Prompt prompt;
  for (const size_t n : {25u, 30u, 18u}) {
    prompt.push_back({BLEND_SEGMENT_CHUNK, random_tokens(rng, spec.n_vocab, n), false});
  }
  prompt.push_back({BLEND_SEGMENT_QUESTION, random_tokens(rng, spec.n_vocab, 7), false});
  return prompt;
}

std::vector<int32_t> more_tokens(const RandomModelSpec& spec) {
  SplitMix rng(spec.seed + 1);
  return random_tokens(rng, spec.n_vocab, 9);
}

const FuseCase kFull{.policy = BLEND_POLICY_FULL};

class LoraFamilies : public testing::TestWithParam<RandomFamily> {
 protected:
  LoraFamilies()
      : spec_(GetParam().spec),
        lora_(random_lora(spec_, 5)),
        path_(write_random_model(spec_, dir_.file("model.gguf"))),
        merged_(write_merged_model(spec_, {{&lora_, 1.0}}, dir_.file("merged.gguf"))),
        adapter_(gguf_lora(lora_).write(dir_.file("adapter.gguf"))),
        ctx_(make_ctx()),
        prompt_(random_parts(spec_)) {}

  // How much more rounding may cost where it sends a row to another expert.
  // A layer that embeds tokens itself makes much of eight elements.
  double tolerance() const {
    return spec_.n_experts == 0 && spec_.input_dim == 0 ? kLogitTolerance : 2e-4;
  }

  TempDir dir_;
  const RandomModelSpec spec_;
  const RandomLora lora_;
  const std::string path_, merged_, adapter_;
  const Ctx ctx_;
  const Prompt prompt_;
};

TEST_P(LoraFamilies, ComputesAsTheMergedWeightsDo) {
  const ReferenceModel reference(merged_);
  const Model model = open_with(ctx_, path_, {{adapter_}});
  ASSERT_TRUE(model);
  const Store store = open_store(ctx_, dir_.file("store"));
  for (const double ratio : {-1.0, 0.0, 0.3, 1.0}) {
    const FuseCase how{.policy = ratio < 0 ? BLEND_POLICY_FULL : BLEND_POLICY_HKVD,
                       .metric = BLEND_METRIC_KV,
                       .ratio = std::max(ratio, 0.0)};
    SCOPED_TRACE(testing::Message() << how);
    const Fusion fusion = fuse(model, store, prompt_, how);
    ASSERT_TRUE(fusion);
    ReferenceFusion want =
        expect_like_reference(reference, fusion, prompt_, how, DType::f32, tolerance());
    for (const int32_t token : more_tokens(spec_)) decode(fusion, {token});
    reference_decode(reference, want, more_tokens(spec_));
    EXPECT_LE(max_difference(logits(fusion), want.logits), tolerance());
  }
}

// A GGUF and a directory of one model, each with the adapter in either format.
TEST_P(LoraFamilies, EitherFormatOnEitherFormat) {
  const Model merged = open_model(ctx_, merged_);
  const std::vector<float> want = logits(fuse(merged, Store(), prompt_, kFull));
  // No directory says of a llama that it has sinks.
  std::vector<std::string> bases = {path_};
  if (!spec_.sinks) bases.push_back(write_random_hf(spec_, dir_.file("hf")));
  const std::string peft = write_peft_lora(spec_, lora_, dir_.file("peft")),
                    rslora = write_peft_lora(spec_, lora_, dir_.file("rslora"), true);
  for (const std::string& base : bases) {
    SCOPED_TRACE(base);
    std::vector<std::vector<uint8_t>> prints;
    for (const std::string& adapter : {adapter_, peft, rslora}) {
      SCOPED_TRACE(adapter);
      const Model model = open_with(ctx_, base, {{adapter}});
      ASSERT_TRUE(model);
      prints.push_back(fingerprint(model));
      EXPECT_LE(max_difference(logits(fuse(model, Store(), prompt_, kFull)), want), tolerance());
    }
    EXPECT_EQ(prints[0], prints[1]) << "the formats say the same";
    const Model plain = open_model(ctx_, base);
    EXPECT_GT(max_difference(logits(fuse(plain, Store(), prompt_, kFull)), want), 0.1)
        << "the adapter changes much";
    EXPECT_NE(fingerprint(plain), prints[0]);
  }
}

TEST_P(LoraFamilies, WeightsInAnyFormTakeIt) {
  const ReferenceModel reference(merged_);
  for (const uint32_t weights : {BLEND_WEIGHTS_PACKED, BLEND_WEIGHTS_MAPPED}) {
    SCOPED_TRACE(weights);
    const Model model = open_with(ctx_, path_, {{adapter_}}, weights);
    expect_like_reference(reference, fuse(model, Store(), prompt_, kFull), prompt_, kFull,
                          DType::f32, tolerance());
  }
  // Bytes differ by as much as they do without the adapter, which is not rounded to any.
  const auto logits_of = [&](const std::vector<Adapter>& adapters, uint32_t weights) {
    return logits(fuse(open_with(ctx_, path_, adapters, weights), Store(), prompt_, kFull));
  };
  const std::vector<float> exact = logits_of({{adapter_}}, BLEND_WEIGHTS_PACKED),
                           bytes = logits_of({{adapter_}}, BLEND_WEIGHTS_INT8);
  EXPECT_LE(max_difference(exact, bytes), spec_.n_experts == 0 ? 2 : 6);
  EXPECT_GT(max_difference(bytes, logits_of({}, BLEND_WEIGHTS_INT8)), 0.1);
}

INSTANTIATE_TEST_SUITE_P(All, LoraFamilies, testing::ValuesIn(families(true)),
                         [](const auto& family) { return family.param.name; });

TEST(LoraRefusals, LayersWithStatesOrLatentRowsTakeNoAdapters) {
  const TempDir dir;
  const Ctx ctx = make_ctx();
  for (const RandomFamily& family : families(false)) {
    const std::string path = write_random_model(family.spec, dir.file(family.name)),
                      adapter = gguf_lora(random_lora({}, 1)).write(dir.file("adapter.gguf"));
    Model model;
    const Outcome said = try_open_with(ctx, path, {{adapter}}, BLEND_WEIGHTS_AUTO, model);
    EXPECT_EQ(said.code, BLEND_E_UNSUPPORTED);
    EXPECT_NE(said.message.find(family.spec.architecture), std::string::npos) << said.message;
  }
}

// Adapters that PEFT saved, with the logits that it computed (lora/make_adapters.py).
class PeftGolden : public testing::TestWithParam<const char*> {};

TEST_P(PeftGolden, LogitsAreThoseOfPeft) {
  const std::string data = std::string(BLEND_TEST_SOURCE_DIR) + "/conformance/";
  const std::string name = GetParam();
  const TempDir dir;
  const std::string base = dir.file("model"), adapter = data + "lora/" + name;
  std::filesystem::copy(data + "hf/" + name.substr(0, name.find('.')), base);
  std::filesystem::copy(data + "tokenizers/qwen2.tokenizer.json", base + "/tokenizer.json");
  std::ifstream in(adapter + "/golden.json");
  const auto golden = nlohmann::json::parse(in);
  const Prompt prompt = {
      {BLEND_SEGMENT_TEXT, golden.at("prompt").get<std::vector<int32_t>>(), false}};
  const Ctx ctx = make_ctx();
  const Model model = open_with(ctx, base, {{adapter}});
  ASSERT_TRUE(model);
  const auto wanted = golden.at("logits").get<std::vector<double>>();
  EXPECT_LE(max_difference(logits(fuse(model, Store(), prompt, kFull)), wanted), 1e-3);
  const Model plain = open_model(ctx, base);
  EXPECT_GT(max_difference(logits(fuse(plain, Store(), prompt, kFull)), wanted), 0.1);
}

INSTANTIATE_TEST_SUITE_P(All, PeftGolden,
                         testing::Values("llama", "qwen3", "gemma3", "phi3", "smollm3",
                                         "gemma3.embedding", "qwen3.embedding", "llama.embedding"),
                         [](const auto& which) {
                           std::string name = which.param;
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

class Lora : public testing::Test {
 protected:
  Lora()
      : first_(random_lora(spec_, 1)),
        second_(random_lora(spec_, 2)),
        path_(write_random_model(spec_, dir_.file("model.gguf"))),
        one_(gguf_lora(first_).write(dir_.file("one.gguf"))),
        two_(gguf_lora(second_).write(dir_.file("two.gguf"))) {}

  std::vector<float> logits_with(const std::vector<Adapter>& adapters) {
    return logits(fuse(open_with(ctx_, path_, adapters), Store(), prompt_, kFull));
  }

  TempDir dir_;
  const RandomModelSpec spec_{};
  const RandomLora first_, second_;
  const std::string path_, one_, two_;
  const Ctx ctx_ = make_ctx();
  const Prompt prompt_ = random_parts(spec_);
};

TEST_F(Lora, SeveralAddUpAndEachHasAScale) {
  const auto merged = [&](const std::vector<std::pair<const RandomLora*, double>>& loras) {
    const std::string path = write_merged_model(spec_, loras, dir_.file("merged.gguf"));
    const ReferenceModel reference(path);
    return reference.prefill(flatten(prompt_)).logits.back();
  };
  EXPECT_LE(max_difference(logits_with({{one_, 0.4}}), merged({{&first_, 0.4}})), kLogitTolerance);
  EXPECT_LE(max_difference(logits_with({{one_, -0.5}}), merged({{&first_, -0.5}})),
            kLogitTolerance);
  EXPECT_LE(max_difference(logits_with({{one_, 0.7}, {two_, 0.5}}),
                           merged({{&first_, 0.7}, {&second_, 0.5}})),
            kLogitTolerance);
}

// Their order changes nothing, not even rounding.
TEST_F(Lora, OrderMeansNothing) {
  EXPECT_EQ(logits_with({{one_, 0.7}, {two_, 0.5}}), logits_with({{two_, 0.5}, {one_, 0.7}}));
  EXPECT_EQ(fingerprint(open_with(ctx_, path_, {{one_, 0.7}, {two_, 0.5}})),
            fingerprint(open_with(ctx_, path_, {{two_, 0.5}, {one_, 0.7}})));
}

TEST_F(Lora, TheFingerprintSaysWhichAdaptersAndScales) {
  std::vector<std::vector<uint8_t>> seen = {fingerprint(open_model(ctx_, path_))};
  const auto add = [&](const std::vector<Adapter>& adapters) {
    seen.push_back(fingerprint(open_with(ctx_, path_, adapters)));
  };
  add({{one_}});
  add({{one_, 0.5}});
  add({{two_}});
  add({{one_}, {two_}});
  add({{one_}, {one_}});
  // One weight of the file, and its alpha.
  RandomLora edited = first_;
  edited.pairs[3].up[5] += 1e-3f;
  add({{gguf_lora(edited).write(dir_.file("edited.gguf"))}});
  edited = first_;
  edited.alpha += 0.5;
  add({{gguf_lora(edited).write(dir_.file("louder.gguf"))}});
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(std::adjacent_find(seen.begin(), seen.end()), seen.end());
  // The default is scale 1, and where the file lies means nothing.
  std::filesystem::copy_file(one_, dir_.file("copy.gguf"));
  EXPECT_EQ(fingerprint(open_with(ctx_, path_, {{one_}})),
            fingerprint(open_with(ctx_, path_, {{dir_.file("copy.gguf"), 1.0}})));
}

// One store holds the chunks of the model without and with an adapter, and each finds its own.
TEST_F(Lora, ChunksAreThoseOfTheModelWithItsAdapters) {
  const Store store = open_store(ctx_, dir_.file("store"));
  const Model plain = open_model(ctx_, path_), adapted = open_with(ctx_, path_, {{one_}});
  const std::vector<int32_t>& chunk = prompt_[0].tokens;
  blend_chunk_id id{};
  EXPECT_EQ(precompute(plain, store, chunk, {}, &id), BLEND_OK);
  const auto finds = [&](const Model& model) {
    blend_error* error = nullptr;
    const int32_t code = blend_chunk_find(model.get(), store.get(), chunk.data(), chunk.size(),
                                          nullptr, &id, &error);
    return outcome(code, error).code;
  };
  EXPECT_EQ(finds(plain), BLEND_OK);
  EXPECT_EQ(finds(adapted), BLEND_E_NOT_FOUND);
  const FuseCase how{.ratio = 0.3, .on_miss = BLEND_MISS_COMPUTE};
  EXPECT_EQ(info(fuse(adapted, store, prompt_, how)).n_hits, 0u);
  EXPECT_EQ(info(fuse(plain, store, prompt_, how)).n_hits, 1u);
  // Stored for both, each loads its own.
  precompute_all(adapted, store, prompt_, {});
  precompute_all(plain, store, prompt_, {});
  for (const Model* model : {&plain, &adapted}) {
    const Fusion one = fuse(*model, store, prompt_, {.ratio = 1.0});
    EXPECT_EQ(info(one).n_hits, 3u);
    EXPECT_LE(max_difference(logits(one), logits(fuse(*model, Store(), prompt_, kFull))), 1e-4);
  }
  const ReferenceModel merged(write_merged_model(spec_, {{&first_, 1.0}}, dir_.file("m.gguf")));
  expect_like_reference(merged, fuse(adapted, store, prompt_, {.ratio = 0.2}), prompt_,
                        {.ratio = 0.2});
}

TEST_F(Lora, TheModelListsThem) {
  const Model model = open_with(ctx_, path_, {{two_, 0.5}, {one_}});
  blend_model_info info{};
  info.struct_size = sizeof info;
  ASSERT_EQ(blend_model_get_info(model.get(), &info, nullptr), BLEND_OK);
  EXPECT_EQ(info.n_loras, 2u);
  blend_lora_info first{}, second{};
  first.struct_size = second.struct_size = sizeof first;
  ASSERT_EQ(blend_model_get_lora(model.get(), 0, &first, nullptr), BLEND_OK);
  ASSERT_EQ(blend_model_get_lora(model.get(), 1, &second, nullptr), BLEND_OK);
  EXPECT_EQ(first.path, two_);
  EXPECT_EQ(first.scale, 0.5);
  EXPECT_EQ(second.path, one_);
  EXPECT_EQ(second.scale, 1.0);
  size_t rank = 0;
  for (const LoraPair& p : first_.pairs) rank = std::max(rank, p.rank);
  EXPECT_EQ(second.rank, rank);
  EXPECT_EQ(second.n_matrices, first_.pairs.size());
  EXPECT_FALSE(std::equal(first.digest, first.digest + 32, second.digest));
  blend_error* error = nullptr;
  const int32_t code = blend_model_get_lora(model.get(), 2, &first, &error);
  EXPECT_EQ(outcome(code, error).code, BLEND_E_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace blend::test
