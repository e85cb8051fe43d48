// A model that is only described: chunks that a host prefilled must be the very chunks that the
// built-in engine stores, and what needs weights must refuse it.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "conformance/expect.h"
#include "conformance/host.h"
#include "conformance/random_prompt.h"
#include "support/random_model.h"
#include "support/temp_dir.h"

namespace blend::test {
namespace {

class Described : public testing::Test {
 protected:
  // Partial rotation and frequency factors, so that each is seen to arrive.
  Described()
      : path_(write_random_model({.rotary_dim = 6, .rope_freq_factors = true},
                                 dir_.file("model.gguf"))),
        reference_(path_) {
    loaded_ = open_model(ctx_, path_);
    blend_model_info info{};
    info.struct_size = sizeof info;
    EXPECT_EQ(blend_model_get_info(loaded_.get(), &info, nullptr), BLEND_OK);
    std::memcpy(fingerprint_, info.fingerprint, sizeof fingerprint_);
    model_ = described_model(ctx_, describe(reference_.config(), fingerprint_));
    store_ = open_store(ctx_, dir_.file("store"));
    SplitMix rng(5);
    chunk_ = random_tokens(rng, reference_.config().n_vocab, 33);
    prefix_ = random_tokens(rng, reference_.config().n_vocab, 3);
  }

  // What a host has after it prefilled prefix_ + chunk_: the chunk's rows of every layer.
  std::vector<HostLayer> prefilled(HostLayout layout, bool rotated) const {
    const ModelConfig& c = reference_.config();
    std::vector<int32_t> tokens = prefix_;
    tokens.insert(tokens.end(), chunk_.begin(), chunk_.end());
    const ReferenceKv kv = reference_.prefill(tokens).kv;
    std::vector<HostLayer> layers;
    for (uint32_t l = 0; l < c.n_layers; ++l) {
      const std::vector<double> k = rotated ? reference_.rotate_rows(l, kv.k[l]) : kv.k[l];
      layers.emplace_back(c, chunk_.size(), layout);
      for (size_t i = 0; i < chunk_.size(); ++i) {
        const size_t at = (prefix_.size() + i) * c.kv_dim();
        layers.back().set(i, k.data() + at, kv.v[l].data() + at);
      }
    }
    return layers;
  }

  Outcome put(std::vector<HostLayer>& layers, bool rotated, blend_chunk_id* id = nullptr,
              uint32_t first_position = 3) {
    std::vector<blend_kv_view> views;
    for (HostLayer& l : layers) views.push_back(l.view(rotated ? 0 : BLEND_KV_VIEW_UNROTATED));
    const blend_precompute_options options = with_prefix();
    blend_error* error = nullptr;
    const int32_t code =
        blend_chunk_put(model_.get(), store_.get(), chunk_.data(), chunk_.size(), views.data(),
                        views.size(), first_position, &options, id, &error);
    return outcome(code, error);
  }
  Outcome find(blend_chunk_id* id) {
    const blend_precompute_options options = with_prefix();
    blend_error* error = nullptr;
    const int32_t code = blend_chunk_find(model_.get(), store_.get(), chunk_.data(), chunk_.size(),
                                          &options, id, &error);
    return outcome(code, error);
  }
  blend_precompute_options with_prefix() const {
    blend_precompute_options options{};
    options.struct_size = sizeof options;
    options.chunk_prefix = prefix_.data();
    options.n_chunk_prefix = prefix_.size();
    return options;
  }
  // The chunk after other text, unchanged: its K, V decide the logits.
  std::vector<float> logits_of_reuse(uint32_t* source = nullptr) {
    const Prompt prompt = {{BLEND_SEGMENT_TEXT, {300, 301, 302, 303, 304}},
                           {BLEND_SEGMENT_CHUNK, chunk_},
                           {BLEND_SEGMENT_QUESTION, {310, 311}}};
    const Fusion f =
        fuse(loaded_, store_, prompt, {.policy = BLEND_POLICY_REUSE, .chunk_prefix = prefix_});
    if (source != nullptr) *source = segment_info(f, 1).source;
    return logits(f);
  }

  TempDir dir_;
  Ctx ctx_ = make_ctx();
  std::string path_;
  ReferenceModel reference_;
  Model loaded_, model_;
  Store store_;
  uint8_t fingerprint_[32] = {};
  std::vector<int32_t> chunk_, prefix_;
};

TEST_F(Described, AChunkOfTheHostIsTheChunkThatPrecomputeStores) {
  blend_chunk_id by_engine;
  ASSERT_EQ(precompute(loaded_, store_, chunk_, prefix_, &by_engine), BLEND_OK);
  const std::vector<float> want = logits_of_reuse();
  for (const HostLayout layout : {HostLayout::rows_first, HostLayout::heads_first}) {
    for (const bool rotated : {false, true}) {
      ASSERT_EQ(blend_store_remove(store_.get(), &by_engine, nullptr, nullptr), BLEND_OK);
      blend_chunk_id id;
      EXPECT_EQ(find(&id).code, BLEND_E_NOT_FOUND);
      EXPECT_EQ(std::memcmp(&id, &by_engine, sizeof id), 0) << "the id is told all the same";
      auto layers = prefilled(layout, rotated);
      std::memset(&id, 0, sizeof id);
      const Outcome o = put(layers, rotated, &id);
      ASSERT_EQ(o.code, BLEND_OK) << o.message;
      EXPECT_EQ(std::memcmp(&id, &by_engine, sizeof id), 0);
      EXPECT_EQ(find(nullptr).code, BLEND_OK);
      uint32_t source = 0;
      EXPECT_LE(max_difference(logits_of_reuse(&source), want), 1e-5)
          << "layout " << static_cast<int>(layout) << ", rotated " << rotated;
      EXPECT_EQ(source, BLEND_SOURCE_STORE);
    }
  }
}

TEST_F(Described, TheFirstPositionSaysWhereKWasRotated) {
  auto layers = prefilled(HostLayout::rows_first, true);
  ASSERT_EQ(put(layers, true).code, BLEND_OK);
  const std::vector<float> right = logits_of_reuse();
  // RoPE is relative: K that is turned by one position too few or too many gives other logits.
  ASSERT_EQ(put(layers, true, nullptr, 40).code, BLEND_OK);
  EXPECT_GT(max_difference(logits_of_reuse(), right), 1e-3);
}

TEST_F(Described, PuttingAgainMendsWhatIsThere) {
  auto wrong = prefilled(HostLayout::rows_first, false);
  for (float& x : wrong[2].v_data()) x += 1;
  ASSERT_EQ(put(wrong, false).code, BLEND_OK);
  const std::vector<float> before = logits_of_reuse();
  auto layers = prefilled(HostLayout::rows_first, false);
  ASSERT_EQ(put(layers, false).code, BLEND_OK);
  EXPECT_GT(max_difference(logits_of_reuse(), before), 1e-3);
}

TEST_F(Described, ValuesThatAreNotFiniteAreRefusedByLayerAndRow) {
  auto layers = prefilled(HostLayout::rows_first, true);
  layers[1].v_data()[7 * reference_.config().kv_dim() + 3] = std::nanf("");
  Outcome o = put(layers, true);
  EXPECT_EQ(o.code, BLEND_E_NUMERIC);
  EXPECT_NE(o.message.find("layer 1"), std::string::npos) << o.message;
  EXPECT_NE(o.message.find("row 7"), std::string::npos) << o.message;
  EXPECT_EQ(find(nullptr).code, BLEND_E_NOT_FOUND) << "nothing was stored";

  store_ = open_store(ctx_, dir_.file("f16"), BLEND_DTYPE_F16);
  layers = prefilled(HostLayout::rows_first, true);
  layers[3].k_data()[0] = 1e6f;
  o = put(layers, true);
  EXPECT_EQ(o.code, BLEND_E_NUMERIC);
  EXPECT_NE(o.message.find("layer 3"), std::string::npos) << o.message;
}

TEST_F(Described, PutChecksItsArguments) {
  auto layers = prefilled(HostLayout::rows_first, true);
  const uint32_t context = reference_.config().context_length;
  EXPECT_EQ(put(layers, true, nullptr, context - 32).code, BLEND_E_CONTEXT_LENGTH);
  EXPECT_EQ(put(layers, true, nullptr, UINT32_MAX).code, BLEND_E_CONTEXT_LENGTH);
  EXPECT_EQ(put(layers, true, nullptr, context - 33).code, BLEND_OK);
  layers.pop_back();
  const Outcome o = put(layers, true);
  EXPECT_EQ(o.code, BLEND_E_INVALID_ARGUMENT);
  EXPECT_NE(o.message.find("3 layers"), std::string::npos) << o.message;

  layers = prefilled(HostLayout::rows_first, true);
  const auto with = [&](auto change) {
    std::vector<blend_kv_view> views;
    for (HostLayer& l : layers) views.push_back(l.view());
    change(views[2]);
    blend_error* error = nullptr;
    const int32_t code = blend_chunk_put(model_.get(), store_.get(), chunk_.data(), chunk_.size(),
                                         views.data(), views.size(), 3, nullptr, nullptr, &error);
    const Outcome out = outcome(code, error);
    EXPECT_NE(out.message.find("layer 2"), std::string::npos) << out.message;
    return out.code;
  };
  EXPECT_EQ(with([](blend_kv_view& v) { v.k = nullptr; }), BLEND_E_INVALID_ARGUMENT);
  EXPECT_EQ(with([](blend_kv_view& v) { v.v = nullptr; }), BLEND_E_INVALID_ARGUMENT);
  EXPECT_EQ(with([](blend_kv_view& v) { v.dtype = 7; }), BLEND_E_INVALID_ARGUMENT);
  EXPECT_EQ(with([](blend_kv_view& v) { v.flags = 2; }), BLEND_E_INVALID_ARGUMENT);
  EXPECT_EQ(with([](blend_kv_view& v) { v.row_stride = 7; }), BLEND_E_INVALID_ARGUMENT);
  EXPECT_EQ(with([](blend_kv_view& v) { v.head_stride = 1; }), BLEND_E_INVALID_ARGUMENT);
  EXPECT_EQ(with([](blend_kv_view& v) { v.struct_size = 8; }), BLEND_E_INVALID_STRUCT);
}

TEST_F(Described, HalfPrecisionBuffersAreReadAsTheyAre) {
  const ModelConfig& c = reference_.config();
  auto layers = prefilled(HostLayout::rows_first, true);
  std::vector<std::vector<uint16_t>> halves;
  std::vector<blend_kv_view> views;
  for (HostLayer& l : layers) {
    blend_kv_view view = l.view();
    for (std::vector<float>* data : {&l.k_data(), &l.v_data()}) {
      halves.emplace_back();
      for (float& x : *data) {
        x = static_cast<float>(round_to(static_cast<double>(x), DType::bf16));
        uint32_t bits;
        std::memcpy(&bits, &x, 4);
        halves.back().push_back(static_cast<uint16_t>(bits >> 16));
      }
    }
    views.push_back(view);
  }
  for (size_t i = 0; i < views.size(); ++i) {
    views[i].dtype = BLEND_DTYPE_BF16;
    views[i].k = halves[2 * i].data();
    views[i].v = halves[2 * i + 1].data();
  }
  ASSERT_EQ(put(layers, true).code, BLEND_OK);  // f32 that holds bf16 values
  const std::vector<float> want = logits_of_reuse();
  auto zeros = prefilled(HostLayout::rows_first, true);
  for (HostLayer& l : zeros) l = HostLayer(c, chunk_.size(), HostLayout::rows_first);
  ASSERT_EQ(put(zeros, true).code, BLEND_OK);
  ASSERT_GT(max_difference(logits_of_reuse(), want), 1e-3);
  const blend_precompute_options options = with_prefix();
  ASSERT_EQ(blend_chunk_put(model_.get(), store_.get(), chunk_.data(), chunk_.size(), views.data(),
                            views.size(), 3, &options, nullptr, nullptr),
            BLEND_OK);
  EXPECT_EQ(logits_of_reuse(), want);
}

TEST_F(Described, WhatNeedsWeightsOrATokenizerRefuses) {
  blend_error* error = nullptr;
  const auto refused = [&](int32_t code) {
    const Outcome o = outcome(code, error);
    error = nullptr;
    EXPECT_EQ(o.code, BLEND_E_INVALID_ARGUMENT);
    EXPECT_NE(o.message.find("only described"), std::string::npos) << o.message;
  };
  int32_t tokens[8] = {5};
  char text[8];
  size_t n = 0;
  refused(blend_model_tokenize(model_.get(), "a", 1, 0, tokens, 8, &n, &error));
  refused(blend_model_detokenize(model_.get(), tokens, 1, 0, text, 8, &n, &error));
  refused(blend_precompute(model_.get(), store_.get(), chunk_.data(), chunk_.size(), nullptr,
                           nullptr, &error));
  const Fused f = try_fuse(model_, store_, {{BLEND_SEGMENT_TEXT, chunk_}}, {});
  EXPECT_EQ(f.outcome.code, BLEND_E_INVALID_ARGUMENT);
  EXPECT_NE(f.outcome.message.find("only described"), std::string::npos) << f.outcome.message;

  blend_model_info info{};
  info.struct_size = sizeof info;
  ASSERT_EQ(blend_model_get_info(model_.get(), &info, nullptr), BLEND_OK);
  EXPECT_EQ(info.n_layers, reference_.config().n_layers);
  EXPECT_EQ(info.head_dim, reference_.config().head_dim);
  EXPECT_EQ(info.bos_token, -1);
  EXPECT_EQ(info.weight_bytes, 0u);
  EXPECT_STREQ(info.name, "described");
  EXPECT_EQ(std::memcmp(info.fingerprint, fingerprint_, 32), 0);
}

TEST_F(Described, AFingerprintIsMadeOfTheNameAndEveryNumber) {
  const auto fingerprint_of = [&](auto change) {
    blend_model_description d = describe(reference_.config(), nullptr);
    change(d);
    const Model m = described_model(ctx_, d);
    blend_model_info info{};
    info.struct_size = sizeof info;
    EXPECT_EQ(blend_model_get_info(m.get(), &info, nullptr), BLEND_OK);
    return std::string(reinterpret_cast<const char*>(info.fingerprint), 32);
  };
  using D = blend_model_description;
  const std::string same = fingerprint_of([](D&) {});
  EXPECT_EQ(fingerprint_of([](D&) {}), same);
  EXPECT_EQ(fingerprint_of([](D& d) { d.context_length = 100; }), same) << "changes no chunk";
  EXPECT_NE(fingerprint_of([](D& d) { d.name = "other"; }), same);
  EXPECT_NE(fingerprint_of([](D& d) { d.n_layers = 3; }), same);
  EXPECT_NE(fingerprint_of([](D& d) { d.rope_theta = 5e5; }), same);
  EXPECT_NE(fingerprint_of([](D& d) { d.rope_linear_scale = 2; }), same);
  EXPECT_NE(fingerprint_of([](D& d) { d.n_rope_freq_factors = 0; }), same);
  EXPECT_NE(fingerprint_of([](D& d) { d.rope_layout = BLEND_ROPE_HALF_SPLIT; }), same);
  EXPECT_NE(fingerprint_of([](D& d) { d.weight_dtype = BLEND_DTYPE_BF16; }), same);
}

TEST_F(Described, ADescriptionThatMakesNoSenseIsRefusedByItsMember) {
  const auto refused = [&](const char* member, auto change) {
    blend_model_description d = describe(reference_.config(), nullptr);
    change(d);
    blend_model* model = nullptr;
    blend_error* error = nullptr;
    const int32_t code = blend_model_create_from_description(&model, ctx_.get(), &d, &error);
    const Outcome o = outcome(code, error);
    EXPECT_EQ(o.code, BLEND_E_INVALID_ARGUMENT) << member;
    EXPECT_NE(o.message.find(member), std::string::npos) << o.message;
    EXPECT_EQ(model, nullptr);
  };
  using D = blend_model_description;
  const float bad_factors[3] = {1, 0, 1};
  refused("n_layers", [](D& d) { d.n_layers = 0; });
  refused("n_layers", [](D& d) { d.n_layers = UINT32_MAX; });
  refused("n_heads", [](D& d) { d.n_heads = 7; });
  refused("n_kv_heads", [](D& d) { d.n_kv_heads = 0; });
  refused("head_dim", [](D& d) { d.head_dim = 1u << 30; });
  refused("n_vocab", [](D& d) { d.n_vocab = 0; });
  refused("context_length", [](D& d) { d.context_length = 0; });
  refused("weight_dtype", [](D& d) { d.weight_dtype = BLEND_DTYPE_AUTO; });
  refused("rope_layout", [](D& d) { d.rope_layout = 0; });
  refused("rotary_dim", [](D& d) { d.rotary_dim = 5; });
  refused("rotary_dim", [](D& d) { d.rotary_dim = 10; });
  refused("rope_theta", [](D& d) { d.rope_theta = -1; });
  refused("rope_linear_scale", [](D& d) { d.rope_linear_scale = std::nan(""); });
  refused("rope_freq_factors", [](D& d) { d.n_rope_freq_factors = 2; });
  refused("rope_freq_factors", [](D& d) { d.rope_freq_factors = nullptr; });
  refused("rope_freq_factors", [&](D& d) { d.rope_freq_factors = bad_factors; });
  refused("n_rope_freq_factors", [](D& d) { d.n_rope_freq_factors = SIZE_MAX; });
  refused("name", [](D& d) { d.name = nullptr; });
}

}  // namespace
}  // namespace blend::test
