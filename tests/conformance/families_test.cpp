// Every family of models through the C ABI against the float64 reference (full prefill, decode,
// fusion at every kind of ratio, edits) and against what transformers and llama.cpp gave for it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "conformance/expect.h"
#include "conformance/golden_file.h"
#include "conformance/random_prompt.h"
#include "support/hf_writer.h"
#include "support/temp_dir.h"

namespace blend::test {
namespace {

std::vector<int32_t> tokenize(const Model& model, const std::string& text) {
  std::vector<int32_t> tokens(text.size() + 8);
  size_t n = 0;
  blend_error* error = nullptr;
  const int32_t code =
      blend_model_tokenize(model.get(), text.data(), text.size(), BLEND_TOKENIZE_BOS, tokens.data(),
                           tokens.size(), &n, &error);
  EXPECT_EQ(outcome(code, error).code, BLEND_OK);
  tokens.resize(n);
  return tokens;
}

// How far the logits are from those wanted, as a share of their spread.
double off(const Fusion& wanted, const Fusion& fusion) {
  const std::vector<float> want = logits(wanted);
  double sum = 0, squares = 0;
  for (const float l : want) sum += static_cast<double>(l);
  const double mean = sum / static_cast<double>(want.size());
  for (const float l : want) squares += std::pow(static_cast<double>(l) - mean, 2);
  return max_difference(want, logits(fusion)) /
         std::sqrt(squares / static_cast<double>(want.size()));
}

class Families : public testing::TestWithParam<RandomFamily> {
 protected:
  Families()
      : path_(write_random_model(GetParam().spec, dir_.file("model.gguf"))),
        reference_(path_),
        ctx_(make_ctx()),
        model_(open_model(ctx_, path_)),
        store_(open_store(ctx_, dir_.file("store"))) {
    SplitMix rng(GetParam().spec.seed);
    const uint32_t n_vocab = GetParam().spec.n_vocab;
    for (const size_t n : {25u, 30u, 18u}) {
      prompt_.push_back({BLEND_SEGMENT_CHUNK, random_tokens(rng, n_vocab, n), false});
    }
    prompt_.push_back({BLEND_SEGMENT_QUESTION, random_tokens(rng, n_vocab, 7), false});
    more_ = random_tokens(rng, n_vocab, 9);
  }

  // How much more rounding may cost where it sends a row to another expert.
  static double jump() { return GetParam().spec.n_experts == 0 ? 1 : 10; }

  TempDir dir_;
  std::string path_;
  ReferenceModel reference_;
  Ctx ctx_;
  Model model_;
  Store store_;
  Prompt prompt_;
  std::vector<int32_t> more_;
};

TEST_P(Families, FusesAsTheReferenceDoes) {
  for (const double ratio : {-1.0, 0.0, 0.3, 1.0}) {
    FuseCase how{.policy = ratio < 0 ? BLEND_POLICY_FULL : BLEND_POLICY_HKVD,
                 .metric = BLEND_METRIC_KV,
                 .ratio = std::max(ratio, 0.0)};
    SCOPED_TRACE(testing::Message() << how);
    const Fusion fusion = fuse(model_, store_, prompt_, how);
    ASSERT_TRUE(fusion);
    expect_like_reference(reference_, fusion, prompt_, how);
  }
}

// Rows that a window hides from the question do not take part in a layer's answer.
TEST_P(Families, TheQuestionChoosesAsInTheReference) {
  for (const double ratio : {0.1, 0.3, 1.0}) {
    const FuseCase how{.policy = BLEND_POLICY_ATTENTION, .ratio = ratio};
    SCOPED_TRACE(testing::Message() << how);
    const Fusion fusion = fuse(model_, store_, prompt_, how);
    ASSERT_TRUE(fusion);
    expect_like_reference(reference_, fusion, prompt_, how);
  }
}

TEST_P(Families, FusesWithWeightsInEitherForm) {
  const FuseCase how{.ratio = 0.3};
  for (const uint32_t weights : {BLEND_WEIGHTS_PACKED, BLEND_WEIGHTS_MAPPED}) {
    SCOPED_TRACE(weights);
    const Model model = open_model(ctx_, path_, weights);
    blend_model_info info{};
    info.struct_size = sizeof info;
    ASSERT_EQ(blend_model_get_info(model.get(), &info, nullptr), BLEND_OK);
    EXPECT_EQ(info.weights, weights);
    const bool small = info.weight_bytes < info.n_parameters / 2;  // norms and biases only
    EXPECT_EQ(small, weights == BLEND_WEIGHTS_MAPPED) << info.weight_bytes;
    const Fusion fusion = fuse(model, store_, prompt_, how);
    ASSERT_TRUE(fusion);
    ReferenceFusion want = expect_like_reference(reference_, fusion, prompt_, how);
    // One row at a time, which mapped weights are multiplied with in another way.
    for (const int32_t token : more_) decode(fusion, {token});
    reference_decode(reference_, want, more_);
    EXPECT_LE(max_difference(logits(fusion), want.logits), kLogitTolerance);
  }
}

// Bytes for weights and activations cost a little, and no more where windows, soft-caps or biases
// are.
TEST_P(Families, StaysCloseInEightBits) {
  const Model model = open_model(ctx_, path_, BLEND_WEIGHTS_INT8);
  blend_model_info info{};
  info.struct_size = sizeof info;
  ASSERT_EQ(blend_model_get_info(model.get(), &info, nullptr), BLEND_OK);
  EXPECT_EQ(info.weights, BLEND_WEIGHTS_INT8);
  const FuseCase full{.policy = BLEND_POLICY_FULL};
  const Fusion exact = fuse(model_, store_, prompt_, full);
  const Fusion bytes = fuse(model, store_, prompt_, full);
  ASSERT_TRUE(exact && bytes);
  // Bytes are there (> 0), and no more than noise. A layer that embeds tokens itself has two
  // products more, and what they make of eight elements is as large as a row.
  const double most = GetParam().spec.input_dim != 0 ? 0.75 : 0.25 * jump();
  EXPECT_GT(off(exact, bytes), 1e-4);
  EXPECT_LT(off(exact, bytes), most);
  for (const int32_t token : more_) {
    decode(exact, {token});
    decode(bytes, {token});
  }
  EXPECT_LT(off(exact, bytes), most);
  // A row's bytes are its own: at ratio 1 the same rows are computed, in other company.
  const Fusion one = fuse(model, store_, prompt_, {.ratio = 1.0});
  ASSERT_TRUE(one);
  decode(one, more_);
  EXPECT_LE(max_difference(logits(bytes), logits(one)), 0.02);
}

// K and V of 16 bits, where windows, soft-caps and partial rotations are, too: rounding shows, and
// no more than that, in a prefill, a fuse, decoded rows and an edit.
TEST_P(Families, StaysCloseWithRowsOfSixteenBits) {
  const FuseCase full{.policy = BLEND_POLICY_FULL};
  for (const uint32_t type : {BLEND_DTYPE_F16, BLEND_DTYPE_BF16}) {
    SCOPED_TRACE(type);
    const double most = jump() * (type == BLEND_DTYPE_F16 ? 0.01 : 0.08);
    const Ctx ctx = make_ctx(2, nullptr, type);
    const Model model = open_model(ctx, path_);
    const Store store = open_store(ctx, dir_.file("store" + std::to_string(type)));
    blend_model_info info{};
    info.struct_size = sizeof info;
    ASSERT_EQ(blend_model_get_info(model.get(), &info, nullptr), BLEND_OK);
    uint64_t elements = 0;
    for (uint32_t i = 0; i < info.n_layers; ++i) {
      elements += GetParam().spec.kept_of(i);
    }
    EXPECT_EQ(info.kv_bytes_per_token, 2 * elements);
    const Fusion exact = fuse(model_, store_, prompt_, full);
    const Fusion rounded = fuse(model, store, prompt_, full);
    const Fusion one = fuse(model, store, prompt_, {.ratio = 1.0});
    ASSERT_TRUE(exact && rounded && one);
    EXPECT_GT(off(exact, rounded), 1e-6);
    EXPECT_LT(off(exact, rounded), most);
    EXPECT_LT(off(rounded, one), most);
    for (const int32_t token : more_) {
      for (const Fusion* fusion : {&exact, &rounded, &one}) decode(*fusion, {token});
    }
    EXPECT_LT(off(exact, rounded), most);
    EXPECT_LT(off(rounded, one), most);
    for (const Fusion* fusion : {&exact, &rounded}) replace(*fusion, 11, 6, {});  // rounds again
    EXPECT_LT(off(exact, rounded), 2 * most);
    const FuseCase some{.metric = BLEND_METRIC_KV, .ratio = 0.3};
    const Fusion want = fuse(model_, store_, prompt_, some),
                 got = fuse(model, store, prompt_, some);
    ASSERT_TRUE(want && got);
    if (selected(want) == selected(got)) {
      EXPECT_LT(off(want, got), 2 * most);
    }
  }
}

TEST_P(Families, RatioOneIsFullPrefillAndStaysSoWhenDecoded) {
  const Fusion full = fuse(model_, store_, prompt_, {.policy = BLEND_POLICY_FULL});
  const Fusion one = fuse(model_, store_, prompt_, {.ratio = 1.0});
  ASSERT_TRUE(full && one);
  EXPECT_LE(max_difference(logits(full), logits(one)), kLogitTolerance);
  decode(full, more_);
  for (const int32_t token : more_) decode(one, {token});
  EXPECT_LE(max_difference(logits(full), logits(one)), kLogitTolerance);
  // And a prompt that is prefilled whole.
  std::vector<int32_t> all = flatten(prompt_);
  all.insert(all.end(), more_.begin(), more_.end());
  EXPECT_LE(max_difference(logits(full), reference_.prefill(all).logits.back()), kLogitTolerance);
}

// The question's attention is the policy's only look at windows and soft-caps outside attention.
TEST_P(Families, WeighsByTheQuestion) {
  FuseCase how{.policy = BLEND_POLICY_QUESTION, .ratio = 0.25};
  const Fusion fusion = fuse(model_, store_, prompt_, how);
  ASSERT_TRUE(fusion);
  expect_like_reference(reference_, fusion, prompt_, how);
}

TEST_P(Families, RowsMove) {
  const FuseCase how{.ratio = 0.2};
  const Fusion fusion = fuse(model_, store_, prompt_, how);
  ASSERT_TRUE(fusion);
  ReferenceFusion want = expect_like_reference(reference_, fusion, prompt_, how);
  std::vector<int32_t> all = flatten(prompt_);
  for (const auto& [first, n_old, n_new] :
       {std::tuple<size_t, size_t, size_t>{5, 14, 0}, {20, 2, 9}, {0, 3, 3}}) {
    const std::vector<int32_t> tokens(more_.begin(), more_.begin() + static_cast<int64_t>(n_new));
    replace(fusion, first, n_old, tokens);
    reference_replace(reference_, want, all, first, n_old, tokens);
    EXPECT_LE(max_difference(logits(fusion), want.logits), kLogitTolerance) << first;
  }
}

// random_model writes the same model in both formats.
TEST_P(Families, IsTheSameAsAHuggingFaceDirectory) {
  if (GetParam().name == "llama_sinks") GTEST_SKIP() << "no directory describes such a model";
  const std::string path = write_random_hf(GetParam().spec, dir_.file("hf"));
  const Model model = open_model(ctx_, path);
  ASSERT_TRUE(model);
  const std::vector<int32_t> tokens = flatten(prompt_);
  const Prompt prompt = {{BLEND_SEGMENT_QUESTION, tokens, false}};
  const Fusion fusion = fuse(model, Store(), prompt, {.policy = BLEND_POLICY_FULL});
  ASSERT_TRUE(fusion);
  EXPECT_LE(max_difference(logits(fusion), reference_.prefill(tokens).logits.back()),
            kLogitTolerance);
  EXPECT_EQ(tokenize(model, "The thing in the café, ▁and <s>."),
            tokenize(model_, "The thing in the café, ▁and <s>."));
}

// golden/families.json. llama.cpp rounds what goes into a product with quantized weights to 8 bits,
// and takes GELU from a table of f16.
TEST_P(Families, IsWhatTransformersAndLlamaCppMakeOfIt) {
  const std::vector<FamilyGolden> all =
      read_family_goldens(BLEND_TEST_SOURCE_DIR "/conformance/golden/families.json");
  const auto golden = std::find_if(
      all.begin(), all.end(), [](const FamilyGolden& g) { return g.family == GetParam().name; });
  ASSERT_NE(golden, all.end()) << "families.json is older than this family";
  const Prompt prompt = {{BLEND_SEGMENT_QUESTION, golden->prompt, false}};
  const Fusion fusion =
      fuse(model_, store_, prompt, {.policy = BLEND_POLICY_FULL, .reserve_tokens = 80});
  ASSERT_TRUE(fusion);
  const RandomModelSpec& spec = GetParam().spec;
  // Of these, transformers and llama.cpp rotate a part of a head.
  const bool known = spec.rotary_dim == 0 || spec.architecture == "phi3" ||
                     spec.architecture == "glm4moe" || spec.delta_dim != 0 || spec.latent_rank != 0;
  if (known) {
    EXPECT_LE(max_difference(logits(fusion), golden->transformers), 1e-3);
    EXPECT_EQ(golden->greedy.size(), 64u);
  }
  // llama.cpp has no windows and no sinks in a `llama`, and windows in an `exaone4` only with 64
  // layers; it rounds the ends of a gpt-oss's ramp of YaRN, and knows a gemma3n of one shape.
  static const std::set<std::string> kNotInLlamaCpp = {"mistral", "exaone4_hybrid", "llama_sinks",
                                                       "gpt_oss_mxfp4", "gemma3n"};
  if (known && !kNotInLlamaCpp.contains(GetParam().name)) {
    const bool table = spec.architecture.starts_with("gemma");
    // A Gemma 4's layer has two of them, or one with experts. Where a gate is cut, llama.cpp
    // takes another variance.
    const bool two = spec.input_dim != 0 || spec.n_experts != 0, cut = spec.cut_layers != 0;
    const double tolerance = !spec.blocks.empty() ? 0.3
                             : cut                ? 1e-1
                             : !table             ? 1e-3
                             : two                ? 2e-2
                                                  : 1e-2;
    EXPECT_LE(max_difference(logits(fusion), golden->llama_cpp), tolerance);
  }
  for (const int32_t token : golden->greedy) {
    const std::vector<float> l = logits(fusion);
    const auto best = std::max_element(l.begin(), l.end()) - l.begin();
    ASSERT_EQ(best, token);
    decode(fusion, {token});
  }
}

// A host's K after a norm that follows RoPE has weights in it that cannot be turned with it.
TEST(RowsOfAHost, AreRefusedWhereTheNormFollowsRope) {
  const TempDir dir;
  const Ctx ctx = make_ctx();
  const Store store = open_store(ctx, dir.file("store"));
  for (const char* architecture : {"hunyuan-dense", "qwen3"}) {
    SCOPED_TRACE(architecture);
    const RandomModelSpec spec{.architecture = architecture};
    const Model model = open_model(ctx, write_random_model(spec, dir.file(architecture)));
    const std::vector<int32_t> tokens = {3, 4, 5};
    std::vector<float> rows(tokens.size() * spec.n_kv_heads * spec.head_dim);
    blend_kv_view view{};
    view.struct_size = sizeof view;
    view.k = view.v = rows.data();
    const std::vector<blend_kv_view> views(spec.n_layers, view);
    blend_error* error = nullptr;
    const int32_t code = blend_chunk_put(model.get(), store.get(), tokens.data(), tokens.size(),
                                         views.data(), views.size(), 0, nullptr, nullptr, &error);
    const Outcome got = outcome(code, error);
    const bool late = std::string(architecture) == "hunyuan-dense";
    EXPECT_EQ(got.code, late ? BLEND_E_UNSUPPORTED : BLEND_OK) << got.message;
    EXPECT_EQ(got.message.find("after RoPE") != std::string::npos, late) << got.message;
  }
}

TEST(FamilyGoldens, AreOfTheFamiliesThereAre) {
  std::vector<std::string> names, golden;
  for (const RandomFamily& f : random_families()) names.push_back(f.name);
  for (const FamilyGolden& g :
       read_family_goldens(BLEND_TEST_SOURCE_DIR "/conformance/golden/families.json")) {
    golden.push_back(g.family);
  }
  EXPECT_EQ(names, golden);
}

INSTANTIATE_TEST_SUITE_P(All, Families, testing::ValuesIn(random_families()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace blend::test
