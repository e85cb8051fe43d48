// Mixtures of experts in GGUF files: what is read, what is refused and how it is named.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <set>

#include "model/fingerprint.h"
#include "model/llama_source.h"
#include "support/random_model.h"

namespace blend {
namespace {

using test::GgufWriter;
using test::random_model;
using test::RandomModelSpec;

RandomModelSpec some_experts(const std::string& architecture) {
  RandomModelSpec s;
  s.architecture = architecture;
  s.n_layers = 3;
  s.d_model = 16;
  s.n_heads = 4;
  s.n_kv_heads = 2;
  s.head_dim = 4;
  s.d_ff = 24;
  s.n_vocab = 300;
  s.n_experts = 5;
  s.n_used = 2;
  s.expert_d_ff = 8;
  return s;
}

Result<std::unique_ptr<ModelSource>> open_file(const GgufWriter& w) {
  const std::string bytes = w.bytes();
  auto copy = std::make_shared<const std::vector<char>>(bytes.begin(), bytes.end());
  return open_llama_gguf(std::as_bytes(std::span(*copy)), copy);
}

Experts experts_of(const GgufWriter& w) {
  auto source = open_file(w);
  EXPECT_TRUE(source.is_ok()) << source.status().message();
  return source.is_ok() ? (*source)->config().experts : Experts();
}

void expect_refused(const GgufWriter& w, int32_t code, const std::string& part) {
  auto source = open_file(w);
  ASSERT_FALSE(source.is_ok()) << part;
  EXPECT_EQ(source.status().code(), code) << source.status().message();
  EXPECT_NE(source.status().message().find(part), std::string::npos) << source.status().message();
}

TEST(GgufExperts, AreWhatTheFileSays) {
  Experts e = experts_of(random_model(some_experts("qwen3moe")));
  EXPECT_EQ(e.count, 5u);
  EXPECT_EQ(e.used, 2u);
  EXPECT_EQ(e.d_ff, 8u);
  EXPECT_EQ(e.shared_d_ff, 0u);
  EXPECT_TRUE(e.normalised);
  EXPECT_FALSE(e.choice_bias);
  EXPECT_EQ(e.scale, 1.0f);
  EXPECT_TRUE(e.dense.empty());
  EXPECT_FALSE(experts_of(random_model(some_experts("olmoe"))).normalised);
  GgufWriter w = random_model(some_experts("qwen3moe"));
  w.boolean("qwen3moe.expert_weights_norm", false).f32("qwen3moe.expert_weights_scale", 2.5f);
  e = experts_of(w);
  EXPECT_FALSE(e.normalised);
  EXPECT_EQ(e.scale, 2.5f);
  // Softmax after the choice is softmax before it, normalised.
  w.u32("qwen3moe.expert_gating_func", 3);
  EXPECT_TRUE(experts_of(w).normalised);
  // A llama has the width of its experts where others have that of their feed-forward.
  RandomModelSpec mixtral = some_experts("llama");
  mixtral.d_ff = mixtral.expert_d_ff = 12;
  EXPECT_EQ(experts_of(random_model(mixtral)).d_ff, 12u);
}

TEST(GgufExperts, MayBeChosenBySigmoidAndInGroups) {
  RandomModelSpec s = some_experts("glm4moe");
  s.n_experts = 6;
  s.dense_layers = 1;
  s.groups = 3;
  s.used_groups = 2;
  const GgufWriter w = random_model(s);
  auto source = open_file(w);
  ASSERT_TRUE(source.is_ok()) << source.status().message();
  const ModelConfig& c = (*source)->config();
  EXPECT_TRUE(c.experts.sigmoid && c.experts.normalised && c.experts.choice_bias);
  EXPECT_EQ(c.experts.groups, 3u);
  EXPECT_EQ(c.experts.used_groups, 2u);
  EXPECT_EQ(c.experts.scale, 1.7f);
  EXPECT_EQ(c.experts.dense, (std::vector<bool>{true, false, false}));
  EXPECT_EQ(c.qk_norm, QkNorm::heads);
  // Two groups of three hold five; one does not.
  expect_refused(
      GgufWriter(w).u32("glm4moe.expert_group_used_count", 1).u32("glm4moe.expert_used_count", 3),
      BLEND_E_FORMAT, "group_used_count");
  expect_refused(GgufWriter(w).u32("glm4moe.expert_group_used_count", 0), BLEND_E_FORMAT,
                 "are 3 and 0");
  EXPECT_TRUE(experts_of(GgufWriter(w).erase_key("glm4moe.expert_gating_func")).sigmoid);
  EXPECT_FALSE(experts_of(GgufWriter(w).u32("glm4moe.expert_gating_func", 1)).sigmoid);
  // The larger GLM 4.5 has norms of Q and K, the smaller one has none.
  GgufWriter plain = w;
  for (const char* const layer : {"blk.0.", "blk.1.", "blk.2."}) {
    plain.erase_tensor(std::string(layer) + "attn_q_norm.weight");
    plain.erase_tensor(std::string(layer) + "attn_k_norm.weight");
  }
  auto without = open_file(plain);
  ASSERT_TRUE(without.is_ok()) << without.status().message();
  EXPECT_EQ((*without)->config().qk_norm, QkNorm::none);
}

// Layers that predict further tokens stand at the end, and are not run.
TEST(GgufExperts, LayersAheadAreLeftOut) {
  RandomModelSpec s = some_experts("glm4moe");
  const GgufWriter all = random_model(s);
  GgufWriter w = all;
  w.u32("glm4moe.nextn_predict_layers", 1);
  w.tensor("blk.2.nextn.enorm.weight", kGgmlF32, {16}, std::string(64, '\0'));
  auto source = open_file(w);
  ASSERT_TRUE(source.is_ok()) << source.status().message();
  EXPECT_EQ((*source)->config().n_layers, 2u);
  expect_refused(
      GgufWriter(all).tensor("blk.2.nextn.enorm.weight", kGgmlF32, {16}, std::string(64, '\0')),
      BLEND_E_UNSUPPORTED, "nextn.enorm");
  expect_refused(w.tensor("blk.1.more.weight", kGgmlF32, {16}, std::string(64, '\0')),
                 BLEND_E_UNSUPPORTED, "blk.1.more");
}

TEST(GgufExperts, OfAGptOssHaveBiases) {
  const GgufWriter w = random_model(some_experts("gpt-oss"));
  auto source = open_file(w);
  ASSERT_TRUE(source.is_ok()) << source.status().message();
  const ModelConfig& c = (*source)->config();
  EXPECT_TRUE(c.experts.biases && c.experts.router_bias && c.experts.normalised);
  EXPECT_FALSE(c.experts.choice_bias);
  EXPECT_EQ(c.activation, Activation::clamped_silu);
  EXPECT_TRUE(c.attn_sinks);
  ASSERT_EQ(c.layers.size(), 3u);
  for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(c.layers[i].window, i == 1 ? 0u : 128u);
  expect_refused(GgufWriter(w).erase_tensor("blk.1.attn_sinks.weight"), BLEND_E_FORMAT,
                 "attn_sinks");
  expect_refused(GgufWriter(w).erase_tensor("blk.2.ffn_up_exps.bias"), BLEND_E_FORMAT,
                 "ffn_up_exps.bias");
}

// Their result has a weight of its own, by the row and a vector.
TEST(GgufExperts, SharedOnesMayBeWeighed) {
  for (const char* architecture : {"qwen2moe", "qwen35moe", "qwen3next"}) {
    SCOPED_TRACE(architecture);
    RandomModelSpec s = some_experts(architecture);
    s.shared_d_ff = 12;
    s.n_layers = 4;
    if (std::string(architecture) != "qwen2moe") {
      s.conv_taps = 4;
      s.attend_every = 4;
      s.delta_k_heads = 2;
      s.delta_v_heads = 4;
      s.delta_dim = 6;
    }
    const std::string at = s.architecture + ".", shared = "expert_shared_feed_forward_length";
    const GgufWriter w = random_model(s);
    auto source = open_file(w);
    ASSERT_TRUE(source.is_ok()) << source.status().message();
    const ModelConfig& c = (*source)->config();
    EXPECT_TRUE(c.experts.shared_weighed);
    EXPECT_EQ(c.experts.shared_d_ff, 12u);
    EXPECT_EQ(c.experts.normalised, s.architecture != "qwen2moe");
    EXPECT_EQ((*source)->tensor(TensorRole::shared_weight, 3).shape, (std::vector<int64_t>{16}));
    EXPECT_EQ(c.row_d_ff(c.n_layers), 12 + 2 * 8.0);
    // A row of a matrix is as good.
    const std::string bytes(size_t{16} * 4, '\0'), vector = "blk.0.ffn_gate_inp_shexp.weight";
    EXPECT_TRUE(open_file(GgufWriter(w).tensor(vector, kGgmlF32, {16, 1}, bytes)).is_ok());
    expect_refused(GgufWriter(w).tensor(vector, kGgmlF32, {8, 2}, bytes), BLEND_E_FORMAT,
                   "'" + vector + "' has the shape [2, 8]");
    expect_refused(GgufWriter(w).erase_tensor(vector), BLEND_E_FORMAT, vector);
    expect_refused(GgufWriter(w).erase_key(at + shared), BLEND_E_FORMAT, "ffn_gate_shexp");
    expect_refused(GgufWriter(w).u32(at + shared, 1u << 27), BLEND_E_FORMAT, shared);
  }
  // Where the file does not say they are as wide as the feed-forward.
  RandomModelSpec s = some_experts("qwen2moe");
  s.shared_d_ff = s.d_ff;
  const GgufWriter w = random_model(s).erase_key("qwen2moe.expert_shared_feed_forward_length");
  EXPECT_EQ(experts_of(w).shared_d_ff, 24u);
  // A model that has experts alone has no other width.
  expect_refused(GgufWriter(w)
                     .erase_key("qwen2moe.expert_feed_forward_length")
                     .erase_key("qwen2moe.feed_forward_length"),
                 BLEND_E_FORMAT, "feed_forward_length' is missing");
}

TEST(GgufExperts, LayersMayBeDense) {
  RandomModelSpec s = some_experts("ernie4_5-moe");
  s.dense_layers = 2;
  s.shared_d_ff = 16;
  auto source = open_file(random_model(s));
  ASSERT_TRUE(source.is_ok()) << source.status().message();
  const ModelConfig& c = (*source)->config();
  EXPECT_TRUE(c.experts.choice_bias);
  EXPECT_EQ(c.experts.shared_d_ff, 16u);
  EXPECT_EQ(c.experts.dense, (std::vector<bool>{true, true, false}));
  EXPECT_EQ(c.common_d_ff(0), 24u);
  EXPECT_EQ(c.common_d_ff(2), 16u);
  EXPECT_NEAR(c.row_d_ff(c.n_layers), (24 + 24 + 16 + 2 * 8) / 3.0, 1e-9);
  EXPECT_EQ((*source)->tensor(TensorRole::ffn_up, 1).shape, (std::vector<int64_t>{24, 16}));
  EXPECT_EQ((*source)->tensor(TensorRole::shared_up, 2).shape, (std::vector<int64_t>{16, 16}));
  EXPECT_EQ((*source)->tensor(TensorRole::router_choice, 2).shape, (std::vector<int64_t>{5}));
  // Every second one.
  expect_refused(random_model(s).u32("ernie4_5-moe.interleave_moe_layer_step", 2), BLEND_E_FORMAT,
                 "leave no layer with experts");
}

// Every expert has its part of the tensor, and gate and up may be one.
TEST(GgufExperts, AreReadFromTheMap) {
  const GgufWriter base = random_model(some_experts("qwen3moe"));
  auto apart = open_file(base);
  ASSERT_TRUE(apart.is_ok());
  const auto values = [](const ModelSource& source, TensorRole role, uint32_t e) {
    const TensorView& t = source.expert_tensor(role, 1, e);
    std::vector<float> out(static_cast<size_t>(t.elements()));
    std::memcpy(out.data(), t.data, out.size() * sizeof(float));
    return out;
  };
  std::set<std::vector<float>> all;
  std::string both;
  for (uint32_t e = 0; e < 5; ++e) {
    for (const auto role : {TensorRole::expert_gate, TensorRole::expert_up}) {
      const std::vector<float> part = values(**apart, role, e);
      EXPECT_TRUE(all.insert(part).second);
      both.append(reinterpret_cast<const char*>(part.data()), part.size() * sizeof(float));
    }
    EXPECT_EQ((*apart)->expert_tensor(TensorRole::expert_down, 1, e).shape,
              (std::vector<int64_t>{16, 8}));
  }
  GgufWriter w = base;
  w.erase_tensor("blk.1.ffn_gate_exps.weight").erase_tensor("blk.1.ffn_up_exps.weight");
  w.tensor("blk.1.ffn_gate_up_exps.weight", kGgmlF32, {16, 16, 5}, both);
  auto fused = open_file(w);
  ASSERT_TRUE(fused.is_ok()) << fused.status().message();
  for (uint32_t e = 0; e < 5; ++e) {
    EXPECT_EQ(values(**fused, TensorRole::expert_up, e), values(**apart, TensorRole::expert_up, e));
  }
}

TEST(GgufExperts, OfNoSenseAreRefused) {
  const GgufWriter base = random_model(some_experts("qwen3moe"));
  const auto with = [&] { return GgufWriter(base); };
  const std::string at = "qwen3moe.";
  expect_refused(with().erase_key(at + "expert_count"), BLEND_E_FORMAT, "expert_count' is 0");
  expect_refused(with().u32(at + "expert_count", 0), BLEND_E_FORMAT, "expert_count' is 0");
  expect_refused(with().u32(at + "expert_count", 1u << 20), BLEND_E_FORMAT, "1 to 4096");
  expect_refused(with().u32(at + "expert_count", 6), BLEND_E_FORMAT,
                 "'blk.0.ffn_gate_inp.weight' has the shape [5, 16]");
  expect_refused(with().erase_key(at + "expert_used_count"), BLEND_E_FORMAT, "is missing");
  expect_refused(with().u32(at + "expert_used_count", 0), BLEND_E_FORMAT,
                 "expert_used_count' is 0");
  expect_refused(with().u32(at + "expert_used_count", 6), BLEND_E_FORMAT, "1 to the 5");
  expect_refused(with().u32(at + "expert_feed_forward_length", 0), BLEND_E_FORMAT, "length' is 0");
  expect_refused(with().u32(at + "expert_feed_forward_length", 9), BLEND_E_FORMAT,
                 "'blk.0.ffn_gate_exps.weight' has the shape [5, 8, 16]; the hyperparameters ask "
                 "for [5, 9, 16]");
  expect_refused(with().u32(at + "leading_dense_block_count", 3), BLEND_E_FORMAT, "leading_dense");
  expect_refused(with().u32(at + "expert_gating_func", 4), BLEND_E_UNSUPPORTED, "gating_func");
  expect_refused(with().u32(at + "expert_group_count", 4), BLEND_E_FORMAT, "group_count");
  expect_refused(with().u32(at + "expert_group_count", 5), BLEND_E_FORMAT, "group_count");
  expect_refused(with().u32(at + "expert_group_used_count", 2), BLEND_E_FORMAT, "group_used_count");
  expect_refused(with().u32(at + "expert_group_count", 1u << 12), BLEND_E_FORMAT, "group_count");
  expect_refused(with().u32(at + "nextn_predict_layers", 3), BLEND_E_FORMAT,
                 "nextn_predict_layers");
  expect_refused(with().f32(at + "expert_weights_scale", -1), BLEND_E_FORMAT, "weights_scale");
  expect_refused(with().u32(at + "expert_shared_count", 1), BLEND_E_FORMAT, "ffn_gate_shexp");
  expect_refused(with().erase_tensor("blk.2.ffn_down_exps.weight"), BLEND_E_FORMAT,
                 "'blk.2.ffn_down_exps.weight' is missing");
  const std::string two(size_t{5} * 8 * 16 * 4, '\0');
  expect_refused(with().tensor("blk.1.ffn_up_exps.weight", kGgmlF32, {16, 40}, two), BLEND_E_FORMAT,
                 "'blk.1.ffn_up_exps.weight' has the shape [40, 16]");
  // Dense models stay as they were.
  RandomModelSpec dense = some_experts("llama");
  dense.n_experts = 0;
  expect_refused(random_model(dense).u32("llama.expert_count", 8), BLEND_E_FORMAT,
                 "expert_used_count");
  EXPECT_EQ(experts_of(random_model(dense).u32("llama.expert_count", 0)).count, 0u);
}

TEST(GgufExperts, AreInTheFingerprint) {
  const auto hash = [](const std::function<void(Experts&)>& change) {
    ModelConfig c;
    change(c.experts);
    Sha256Hasher hasher;
    hash_config(c, hasher);
    return to_hex(hasher.finish());
  };
  const std::set<std::string> all = {
      hash([](Experts&) {}),
      hash([](Experts& e) { e.count = 2; }),
      hash([](Experts& e) { e.count = 2, e.used = 1; }),
      hash([](Experts& e) { e.count = 2, e.d_ff = 1; }),
      hash([](Experts& e) { e.count = 2, e.shared_d_ff = 1; }),
      hash([](Experts& e) { e.count = 2, e.normalised = true; }),
      hash([](Experts& e) { e.count = 2, e.choice_bias = true; }),
      hash([](Experts& e) { e.count = 2, e.scale = 2; }),
      hash([](Experts& e) { e.count = 2, e.shared_weighed = true; }),
      hash([](Experts& e) { e.count = 2, e.beside_dense = true; }),
      hash([](Experts& e) { e.count = 2, e.sigmoid = true; }),
      hash([](Experts& e) { e.count = 2, e.groups = 2; }),
      hash([](Experts& e) { e.count = 2, e.groups = e.used_groups = 2; }),
      hash([](Experts& e) {
        e.count = 2, e.dense = {true, false};
      }),
      hash([](Experts& e) {
        e.count = 2, e.dense = {false, true};
      }),
  };
  EXPECT_EQ(all.size(), 15u);
  EXPECT_EQ(hash([](Experts&) {}), hash([](Experts& e) { e.used = 3; })) << "of no experts";
}

}  // namespace
}  // namespace blend
