// GGUF `llama` files as ModelSources: what is read, what is refused and how it is named.
#include "model/llama_source.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <set>
#include <string>

#include "model/fingerprint.h"
#include "model/rope_scaling.h"
#include "support/outside_data.h"
#include "support/random_model.h"
#include "support/temp_dir.h"

namespace blend {
namespace {

using test::GgufWriter;
using test::random_model;
using test::RandomModelSpec;

RandomModelSpec small() {
  RandomModelSpec s;
  s.n_layers = 2;
  s.d_model = 16;
  s.n_heads = 4;
  s.n_kv_heads = 2;
  s.head_dim = 4;
  s.d_ff = 24;
  s.n_vocab = 300;
  return s;
}

Result<std::unique_ptr<ModelSource>> open_bytes(const std::string& bytes) {
  auto copy = std::make_shared<const std::vector<char>>(bytes.begin(), bytes.end());
  return open_llama_gguf(std::as_bytes(std::span(*copy)), copy);
}

void expect_error(const GgufWriter& w, int32_t code, const std::string& part) {
  const auto source = open_bytes(w.bytes());
  ASSERT_FALSE(source.is_ok()) << part;
  EXPECT_EQ(source.status().code(), code) << source.status().message();
  EXPECT_NE(source.status().message().find(part), std::string::npos) << source.status().message();
}

TEST(LlamaSource, ReadsWhatTheFileSays) {
  RandomModelSpec s = small();
  s.rotary_dim = 2;
  s.rope_theta = 500000;
  s.context = 777;
  const auto source = open_bytes(random_model(s).bytes());
  ASSERT_TRUE(source.is_ok()) << source.status().message();
  const ModelConfig& c = (*source.value()).config();
  EXPECT_EQ(c.architecture, "llama");
  EXPECT_EQ(c.name, "random");
  EXPECT_EQ(c.n_layers, 2u);
  EXPECT_EQ(c.d_model, 16u);
  EXPECT_EQ(c.n_heads, 4u);
  EXPECT_EQ(c.n_kv_heads, 2u);
  EXPECT_EQ(c.head_dim, 4u);
  EXPECT_EQ(c.d_ff, 24u);
  EXPECT_EQ(c.n_vocab, 300u);
  EXPECT_EQ(c.context_length, 777u);
  EXPECT_EQ(c.rms_eps, 1e-5f);
  EXPECT_EQ(c.rope.layout, RopeLayout::interleaved);
  EXPECT_EQ(c.rope.rotary_dim, 2u);
  EXPECT_EQ(c.rope.theta, 500000.0);
  EXPECT_EQ(c.rope.linear_scale, 1.0);
  EXPECT_TRUE(c.rope.freq_factors.empty());
}

TEST(LlamaSource, DefaultsOfAbsentKeys) {
  GgufWriter w = random_model(small());
  w.erase_key("llama.attention.key_length").erase_key("llama.attention.value_length");
  w.erase_key("llama.rope.dimension_count").erase_key("llama.rope.freq_base");
  w.erase_key("general.name");
  auto source = open_bytes(w.bytes());
  ASSERT_TRUE(source.is_ok()) << source.status().message();
  EXPECT_EQ((*source)->config().head_dim, 4u);
  EXPECT_EQ((*source)->config().rope.rotary_dim, 4u);
  EXPECT_EQ((*source)->config().rope.theta, 10000.0);
  EXPECT_EQ((*source)->config().name, "");

  RandomModelSpec mha = small();
  mha.n_kv_heads = mha.n_heads;
  source = open_bytes(random_model(mha).erase_key("llama.attention.head_count_kv").bytes());
  ASSERT_TRUE(source.is_ok()) << source.status().message();
  EXPECT_EQ((*source)->config().n_kv_heads, 4u);
}

// Every role gives the tensor of its name, row-major, with the bytes that were written.
TEST(LlamaSource, TensorsByRole) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    RandomModelSpec s = small();
    s.dtype = dtype;
    const std::string bytes = random_model(s).bytes();
    const auto opened = open_bytes(bytes);
    ASSERT_TRUE(opened.is_ok()) << opened.status().message();
    const ModelSource& source = *opened.value();
    EXPECT_EQ(source.config().weight_dtype, dtype);
    const auto expect = [&](TensorRole role, uint32_t layer, const std::string& name,
                            std::vector<int64_t> shape) {
      const TensorView& t = source.tensor(role, layer);
      EXPECT_EQ(t.name, name);
      EXPECT_EQ(t.shape, shape) << name;
      EXPECT_EQ(t.dtype, shape.size() == 1 ? DType::f32 : dtype) << name;
      // The writer's seed is the tensor's name: writing it alone gives the same bytes.
      EXPECT_NE(bytes.find(std::string(reinterpret_cast<const char*>(t.data), t.bytes())),
                std::string::npos);
    };
    expect(TensorRole::embedding, 0, "token_embd.weight", {300, 16});
    expect(TensorRole::output_norm, 0, "output_norm.weight", {16});
    expect(TensorRole::output, 0, "output.weight", {300, 16});
    for (uint32_t l = 0; l < 2; ++l) {
      const std::string blk = "blk." + std::to_string(l) + ".";
      expect(TensorRole::attn_norm, l, blk + "attn_norm.weight", {16});
      expect(TensorRole::attn_q, l, blk + "attn_q.weight", {16, 16});
      expect(TensorRole::attn_k, l, blk + "attn_k.weight", {8, 16});
      expect(TensorRole::attn_v, l, blk + "attn_v.weight", {8, 16});
      expect(TensorRole::attn_out, l, blk + "attn_output.weight", {16, 16});
      expect(TensorRole::ffn_norm, l, blk + "ffn_norm.weight", {16});
      expect(TensorRole::ffn_gate, l, blk + "ffn_gate.weight", {24, 16});
      expect(TensorRole::ffn_up, l, blk + "ffn_up.weight", {24, 16});
      expect(TensorRole::ffn_down, l, blk + "ffn_down.weight", {16, 24});
    }
    EXPECT_EQ(source.n_parameters(),
              300u * 16 * 2 + 16 + 2 * (16 + 16 * 16 * 2 + 2 * 8 * 16 + 16 + 3 * 24 * 16));
  }
}

// The data pointer itself, with values that say where they are.
TEST(LlamaSource, DataIsWhereTheFilePutIt) {
  GgufWriter w = random_model(small());
  std::string data;
  for (int i = 0; i < 24 * 16; ++i) data += test::gguf_bytes(static_cast<float>(i));
  w.tensor("blk.1.ffn_down.weight", test::kGgmlF32, {24, 16}, data);
  const auto source = open_bytes(w.bytes());
  ASSERT_TRUE(source.is_ok()) << source.status().message();
  const TensorView& t = source.value()->tensor(TensorRole::ffn_down, 1);
  EXPECT_EQ(std::memcmp(t.data, data.data(), data.size()), 0);
}

TEST(LlamaSource, TiedEmbeddings) {
  RandomModelSpec s = small();
  s.tied = true;
  const auto source = open_bytes(random_model(s).bytes());
  ASSERT_TRUE(source.is_ok()) << source.status().message();
  EXPECT_EQ(&source.value()->tensor(TensorRole::output, 0),
            &source.value()->tensor(TensorRole::embedding, 0));
  EXPECT_EQ(source.value()->n_parameters(),
            300u * 16 + 16 + 2 * (16 + 16 * 16 * 2 + 2 * 8 * 16 + 16 + 3 * 24 * 16));
}

TEST(LlamaSource, RopeVariants) {
  RandomModelSpec s = small();
  s.rope_freq_factors = true;
  auto source = open_bytes(random_model(s).bytes());
  ASSERT_TRUE(source.is_ok()) << source.status().message();
  EXPECT_EQ((*source)->config().rope.freq_factors.size(), 2u);
  EXPECT_EQ((*source)->config().rope.freq_factors[1], 8.0f);

  const auto scale_of = [](GgufWriter w) -> double {
    const auto opened = open_bytes(w.bytes());
    EXPECT_TRUE(opened.is_ok()) << opened.status().message();
    return opened.is_ok() ? opened.value()->config().rope.linear_scale : 0;
  };
  const GgufWriter base = random_model(small());
  const char* const type = "llama.rope.scaling.type";
  const char* const factor = "llama.rope.scaling.factor";
  EXPECT_EQ(scale_of(GgufWriter(base).string(type, "linear").f32(factor, 4)), 4.0);
  EXPECT_EQ(scale_of(GgufWriter(base).string(type, "none").f32(factor, 4)), 1.0);
  EXPECT_EQ(scale_of(GgufWriter(base).f32(factor, 4)), 4.0);
  EXPECT_EQ(scale_of(GgufWriter(base).f32("llama.rope.scale_linear", 2)), 2.0);
  EXPECT_EQ(scale_of(GgufWriter(base).f32("llama.rope.scale_linear", 0)), 1.0);
  // YaRN: the factors of 4 times 64 positions, by the paper's ramp, and its factor of attention.
  auto yarn = open_bytes(GgufWriter(base)
                             .string(type, "yarn")
                             .f32(factor, 4)
                             .u32("llama.rope.scaling.original_context_length", 64)
                             .bytes());
  ASSERT_TRUE(yarn.is_ok()) << yarn.status().message();
  EXPECT_EQ((*yarn)->config().rope.linear_scale, 1.0);
  EXPECT_NEAR((*yarn)->config().rope.attention_factor, 0.1 * std::log(4.0) + 1, 1e-12);
  EXPECT_FALSE((*yarn)->config().rope.freq_factors.empty());
  expect_error(GgufWriter(base).string(type, "yarn").f32(factor, -4), BLEND_E_FORMAT, "factor");
  expect_error(
      GgufWriter(base).string(type, "yarn").f32("llama.rope.scaling.yarn_ext_factor", 0.5f),
      BLEND_E_UNSUPPORTED, "YaRN");
  // One key replaces YaRN's own factor, the other multiplies the result.
  yarn = open_bytes(GgufWriter(base)
                        .string(type, "yarn")
                        .f32(factor, 4)
                        .f32("llama.rope.scaling.yarn_attn_factor", 1.5f)
                        .f32("llama.rope.scaling.attn_factor", 2)
                        .bytes());
  ASSERT_TRUE(yarn.is_ok()) << yarn.status().message();
  EXPECT_EQ((*yarn)->config().rope.attention_factor, 3.0);
  expect_error(GgufWriter(base).string(type, "dynamic"), BLEND_E_UNSUPPORTED, "dynamic");
  expect_error(GgufWriter(base).f32(factor, -1), BLEND_E_FORMAT, factor);
  expect_error(GgufWriter(base).f32(factor, std::numeric_limits<float>::infinity()), BLEND_E_FORMAT,
               factor);

  const auto factors = [&](const std::vector<float>& values) {
    std::string data;
    for (const float v : values) data += test::gguf_bytes(v);
    return GgufWriter(base).tensor("rope_freqs.weight", test::kGgmlF32, {values.size()}, data);
  };
  expect_error(factors({1}), BLEND_E_FORMAT, "rope_freqs.weight");
  expect_error(factors({1, 0}), BLEND_E_FORMAT, "rope_freqs.weight");
  expect_error(factors({1, -2}), BLEND_E_FORMAT, "rope_freqs.weight");
  expect_error(factors({1, std::nanf("")}), BLEND_E_FORMAT, "rope_freqs.weight");
}

// LongRoPE: both sets of factors, and where the one takes the other's place.
TEST(LlamaSource, LongRope) {
  RandomModelSpec s = small();
  s.architecture = "phi3";
  s.long_from = 64;
  s.rope_attention = 1.25;
  const GgufWriter base = random_model(s);
  auto source = open_bytes(base.bytes());
  ASSERT_TRUE(source.is_ok()) << source.status().message();
  const ModelConfig& c = (*source)->config();
  EXPECT_EQ(c.rope.layout, RopeLayout::half_split);
  EXPECT_EQ(c.rope.freq_factors, (std::vector<float>{1, 3}));
  EXPECT_EQ(c.long_rope.freq_factors, (std::vector<float>{1, 8}));
  EXPECT_EQ(c.short_context, 64u);
  EXPECT_EQ(c.rope.attention_factor, 1.25);
  EXPECT_EQ(c.long_rope.attention_factor, 1.25);
  EXPECT_EQ(c.long_rope.rotary_dim, 4u);
  EXPECT_EQ(c.long_rope.layout, RopeLayout::half_split);

  // Without a first context it is the whole one.
  const char* const original = "phi3.rope.scaling.original_context_length";
  source = open_bytes(GgufWriter(base).erase_key(original).bytes());
  ASSERT_TRUE(source.is_ok()) << source.status().message();
  EXPECT_EQ((*source)->config().short_context, (*source)->config().context_length);
  const char* const type = "phi3.rope.scaling.type";
  EXPECT_TRUE(open_bytes(GgufWriter(base).string(type, "longrope").bytes()).is_ok());

  // Its special tokens take white space along.
  const auto ids = (*source)->tokenizer().encode("</s>\n\n", BLEND_TOKENIZE_SPECIAL);
  ASSERT_TRUE(ids.is_ok());
  EXPECT_EQ(ids.value(), std::vector<int32_t>{2});

  expect_error(GgufWriter(base).u32(original, 0), BLEND_E_FORMAT, original);
  expect_error(GgufWriter(base).string(type, "yarn"), BLEND_E_UNSUPPORTED, "rope_factors_long");
  for (const char* name : {"rope_factors_long.weight", "rope_factors_short.weight"}) {
    expect_error(GgufWriter(base).erase_tensor(name), BLEND_E_FORMAT, name);
    expect_error(GgufWriter(base).tensor(name, test::kGgmlF32, {1}, test::gguf_bytes(1.0f)),
                 BLEND_E_FORMAT, name);
  }
  expect_error(random_model(small()).string("llama.rope.scaling.type", "longrope"), BLEND_E_FORMAT,
               "rope_factors_short.weight");
  s.rope_freq_factors = true;
  expect_error(random_model(s), BLEND_E_UNSUPPORTED, "rope_freqs.weight");
}

// One tensor for Q, K and V, and one for gate and up: every role is its rows of it.
TEST(LlamaSource, FusedTensors) {
  for (const BlockType blocks : {BlockType::none, BlockType::q8_0}) {
    RandomModelSpec s = small();
    s.architecture = "phi3";
    s.d_model = 32;
    s.d_ff = 64;
    s.head_dim = 8;
    if (blocks != BlockType::none) s.blocks = {blocks};
    const GgufWriter base = random_model(s);
    const auto opened = open_bytes(base.bytes());
    ASSERT_TRUE(opened.is_ok()) << opened.status().message();
    const ModelSource& source = *opened.value();
    const TensorView q = source.tensor(TensorRole::attn_q, 1);
    const size_t row = blocks == BlockType::none ? 32 * 4 : 34;
    const auto expect = [&](TensorRole role, int64_t rows, const std::byte* data) {
      const TensorView& t = source.tensor(role, 1);
      EXPECT_EQ(t.shape, (std::vector<int64_t>{rows, 32}));
      EXPECT_EQ(t.data, data) << t.name << " of " << rows;
    };
    expect(TensorRole::attn_q, 32, q.data);
    expect(TensorRole::attn_k, 16, q.data + 32 * row);
    expect(TensorRole::attn_v, 16, q.data + 48 * row);
    const TensorView gate = source.tensor(TensorRole::ffn_gate, 1);
    EXPECT_EQ(gate.name, "blk.1.ffn_up.weight");
    expect(TensorRole::ffn_gate, 64, gate.data);
    expect(TensorRole::ffn_up, 64, gate.data + 64 * row);
    EXPECT_EQ(source.n_parameters(), 300u * 32 * 2 + 32 + 2 * (2 * 32 + 96 * 32 + 3 * 64 * 32));

    for (const auto& [name, rows] :
         {std::pair{"blk.1.attn_qkv.weight", 60u}, std::pair{"blk.0.ffn_up.weight", 127u}}) {
      expect_error(
          GgufWriter(base).tensor(name, test::kGgmlF32, {32, rows}, std::string(rows * 128, '\0')),
          BLEND_E_FORMAT, std::string("'") + name + "' has the shape [");
    }
    expect_error(GgufWriter(base).erase_tensor("blk.1.attn_qkv.weight"), BLEND_E_FORMAT,
                 "'blk.1.attn_q.weight' is missing");
    expect_error(GgufWriter(base).erase_tensor("blk.1.ffn_up.weight"), BLEND_E_FORMAT,
                 "'blk.1.ffn_gate.weight' is missing");
    // Beside the fused tensor, one that would be it again.
    expect_error(GgufWriter(base).tensor("blk.1.attn_q.weight", test::kGgmlF32, {32, 32},
                                         std::string(32 * 128, '\0')),
                 BLEND_E_UNSUPPORTED, "'blk.1.attn_q.weight' has no place");
  }
}

// As converters fuse the biases of other families.
TEST(LlamaSource, FusedBiases) {
  RandomModelSpec s = small();
  s.architecture = "qwen2";
  GgufWriter w = random_model(s);
  std::string values, weights;
  for (int i = 0; i < 32; ++i) values += test::gguf_bytes(static_cast<float>(i));
  for (int l = 0; l < 2; ++l) {
    const std::string blk = "blk." + std::to_string(l) + ".";
    for (const char* part : {"attn_q", "attn_k", "attn_v"}) {
      w.erase_tensor(blk + part + ".weight").erase_tensor(blk + part + ".bias");
    }
    w.tensor(blk + "attn_qkv.weight", test::kGgmlF32, {16, 32}, std::string(16 * 32 * 4, '\1'));
    w.tensor(blk + "attn_qkv.bias", test::kGgmlF32, {32}, values);
  }
  const auto opened = open_bytes(w.bytes());
  ASSERT_TRUE(opened.is_ok()) << opened.status().message();
  const auto first = [&](TensorRole role) {
    float value = 0;
    std::memcpy(&value, opened.value()->tensor(role, 0).data, sizeof value);
    return value;
  };
  EXPECT_EQ(first(TensorRole::attn_q_bias), 0.0f);
  EXPECT_EQ(first(TensorRole::attn_k_bias), 16.0f);
  EXPECT_EQ(first(TensorRole::attn_v_bias), 24.0f);
  EXPECT_EQ(opened.value()->tensor(TensorRole::attn_v_bias, 1).shape, std::vector<int64_t>{8});
  // A llama has them where the file does.
  RandomModelSpec llama = small();
  GgufWriter biased = random_model(llama);
  for (int l = 0; l < 2; ++l) {
    const std::string blk = "blk." + std::to_string(l) + ".";
    for (const char* part : {"attn_q", "attn_k", "attn_v"}) {
      biased.erase_tensor(blk + part + ".weight");
    }
    biased.tensor(blk + "attn_qkv.weight", test::kGgmlF32, {16, 32},
                  std::string(16 * 32 * 4, '\1'));
    biased.tensor(blk + "attn_qkv.bias", test::kGgmlF32, {32}, values);
  }
  const auto second = open_bytes(biased.bytes());
  ASSERT_TRUE(second.is_ok()) << second.status().message();
  EXPECT_TRUE(second.value()->config().qkv_bias);
  expect_error(GgufWriter(w).tensor("blk.1.attn_qkv.bias", 8, {32}, std::string(34, '\0')),
               BLEND_E_UNSUPPORTED, "'blk.1.attn_qkv.bias' is a quantized vector");
}

ModelConfig config_of(const RandomModelSpec& spec) {
  auto source = open_bytes(random_model(spec).bytes());
  EXPECT_TRUE(source.is_ok()) << source.status().message();
  return source.is_ok() ? (*source)->config() : ModelConfig{};
}

TEST(LlamaSource, Families) {
  RandomModelSpec s = small();
  s.n_layers = 12;
  using Rope = LayerAttention::Rope;
  EXPECT_TRUE(config_of(s).layers.empty());
  s.window = 40;
  for (const LayerAttention& layer : config_of(s).layers) {
    EXPECT_EQ(layer, (LayerAttention{40, Rope::main}));
  }
  s.biases = true;
  EXPECT_TRUE(config_of(s).qkv_bias && config_of(s).attn_out_bias && config_of(s).ffn_bias);
  s.biases = false;

  s.architecture = "qwen2";
  ModelConfig c = config_of(s);
  EXPECT_TRUE(c.qkv_bias && !c.attn_out_bias && !c.ffn_bias && c.qk_norm == QkNorm::none);
  EXPECT_EQ(c.rope.layout, RopeLayout::half_split);

  s.architecture = "qwen3";
  c = config_of(s);
  EXPECT_TRUE(c.qk_norm == QkNorm::heads && !c.qkv_bias && !c.post_norms);

  s.architecture = "smollm3";
  s.window = 0;
  c = config_of(s);
  EXPECT_EQ(c.rope.layout, RopeLayout::interleaved);
  for (uint32_t i = 0; i < 12; ++i) {
    EXPECT_EQ(c.attention(i), (LayerAttention{0, i % 4 == 3 ? Rope::none : Rope::main})) << i;
  }

  s.architecture = "gemma2";
  s.window = 40;
  c = config_of(s);
  EXPECT_TRUE(c.post_norms && c.qk_norm == QkNorm::none && c.activation == Activation::gelu_tanh);
  EXPECT_EQ(c.embedding_scale, 4.0f);  // sqrt(16)
  EXPECT_EQ(c.norm_offset, 0.0f) << "the file has it in the weights";
  EXPECT_EQ(c.attn_softcap, 5.0f);
  EXPECT_EQ(c.logit_softcap, 6.0f);
  EXPECT_EQ(c.attn_scale, 0.0f);
  for (uint32_t i = 0; i < 12; ++i) {
    EXPECT_EQ(c.attention(i), (LayerAttention{i % 2 == 0 ? 40u : 0u, Rope::main})) << i;
  }
  // The first files of the family do not say what it always has.
  GgufWriter silent = random_model(s);
  silent.erase_key("gemma2.attention.sliding_window").u32("gemma2.context_length", 8192);
  silent.erase_key("gemma2.attn_logit_softcapping").erase_key("gemma2.final_logit_softcapping");
  auto opened = open_bytes(silent.bytes());
  ASSERT_TRUE(opened.is_ok()) << opened.status().message();
  EXPECT_EQ((*opened)->config().attn_softcap, 50.0f);
  EXPECT_EQ((*opened)->config().logit_softcap, 30.0f);
  EXPECT_EQ((*opened)->config().attention(0).window, 4096u);
  EXPECT_EQ((*opened)->config().attention(1).window, 0u);
  s.n_layers = 46;  // the 27B
  s.n_heads = 4;
  s.head_dim = 8;
  EXPECT_EQ(config_of(s).attn_scale, 0.5f) << "1 / sqrt(16 / 4)";
  s = small();

  s.architecture = "gemma3";
  s.n_layers = 12;
  s.window = 40;
  s.rope_theta = 1e6;
  s.linear_scale = 8;
  c = config_of(s);
  EXPECT_TRUE(c.post_norms && c.qk_norm == QkNorm::heads);
  EXPECT_EQ(c.rope.linear_scale, 8.0);
  EXPECT_EQ(c.local_rope.linear_scale, 1.0) << "the windowed layers are not scaled";
  EXPECT_EQ(c.local_rope.theta, 10000.0);
  for (uint32_t i = 0; i < 12; ++i) {
    const LayerAttention want =
        i % 6 == 5 ? LayerAttention{0, Rope::main} : LayerAttention{40, Rope::local};
    EXPECT_EQ(c.attention(i), want) << i;
  }
  // A window that hides nothing still rotates in its own way; without one all layers are global.
  s.window = s.context;
  EXPECT_EQ(config_of(s).attention(0), (LayerAttention{0, Rope::local}));
  s.window = 0;
  EXPECT_TRUE(config_of(s).layers.empty());
  s.window = 40;
  GgufWriter w = random_model(s);
  const char* const pattern = "gemma3.attention.sliding_window_pattern";
  opened = open_bytes(GgufWriter(w).u32(pattern, 3).bytes());
  ASSERT_TRUE(opened.is_ok()) << opened.status().message();
  for (uint32_t i = 0; i < 12; ++i) {
    EXPECT_EQ((*opened)->config().attention(i).window, i % 3 == 2 ? 0u : 40u) << i;
  }
  const auto each = [&](const std::string& flags) {
    return GgufWriter(w).value(pattern, static_cast<uint32_t>(test::GgufType::array),
                               test::gguf_bytes(static_cast<uint32_t>(test::GgufType::boolean)) +
                                   test::gguf_bytes(static_cast<uint64_t>(flags.size())) + flags);
  };
  opened = open_bytes(each(std::string("\1\0\0\1\1\1\1\1\1\1\1\0", 12)).bytes());
  ASSERT_TRUE(opened.is_ok()) << opened.status().message();
  for (uint32_t i = 0; i < 12; ++i) {
    const bool local = i != 1 && i != 2 && i != 11;
    EXPECT_EQ((*opened)->config().attention(i),
              local ? (LayerAttention{40, Rope::local}) : LayerAttention{})
        << i;
  }
  expect_error(each(std::string(11, '\1')), BLEND_E_FORMAT, pattern);
  expect_error(w.f32("llama.attn_logit_softcapping", 5).string("general.architecture", "llama"),
               BLEND_E_FORMAT, "llama.block_count");
  RandomModelSpec plain = small();
  expect_error(random_model(plain).f32("llama.attn_logit_softcapping", 5), BLEND_E_UNSUPPORTED,
               "softcapping");
}

TEST(LlamaSource, FamiliesThatScaleWhatTheyAdd) {
  RandomModelSpec s = small();
  s.architecture = "granite";
  ModelConfig c = config_of(s);
  EXPECT_EQ(c.rope.layout, RopeLayout::interleaved);
  EXPECT_EQ(c.embedding_scale, 4.0f);
  EXPECT_EQ(c.result_scales, (ResultScales{0.7f, 0.7f, 0.7f}));
  EXPECT_EQ(c.attn_scale, 0.35f);
  EXPECT_EQ(c.logit_scale, 1 / 1.6f) << "logits are divided by the file's";
  EXPECT_TRUE(c.layers.empty());
  const char* const rotates = "granite.rope.scaling.finetuned";
  auto opened = open_bytes(random_model(s).boolean(rotates, false).bytes());
  ASSERT_TRUE(opened.is_ok()) << opened.status().message();
  EXPECT_EQ((*opened)->config().attention(1).rope, LayerAttention::Rope::none);
  expect_error(random_model(s).f32("granite.residual_scale", 0), BLEND_E_FORMAT, "residual_scale");
  expect_error(random_model(s).u32("granite.expert_count", 8), BLEND_E_UNSUPPORTED, "expert_count");
}

// Rows of models that compute otherwise are never each other's.
TEST(LlamaSource, WhatFamiliesComputeIsInTheFingerprint) {
  const auto hash = [](const std::function<void(ModelConfig&)>& change) {
    ModelConfig c;
    change(c);
    Sha256Hasher hasher;
    hash_config(c, hasher);
    return to_hex(hasher.finish());
  };
  const std::set<std::string> all = {
      hash([](ModelConfig&) {}),
      hash([](ModelConfig& c) {
        c.result_scales = {2, 2, 2};
      }),
      hash([](ModelConfig& c) {
        c.result_scales = {2, 2, 1};
      }),
      hash([](ModelConfig& c) {
        c.result_scales = {1, 2, 1};
      }),
      hash([](ModelConfig& c) { c.gate_scale = 2; }),
      hash([](ModelConfig& c) { c.paired = true; }),
      hash([](ModelConfig& c) { c.experts.count = 2; }),
      hash([](ModelConfig& c) { c.experts.count = 2, c.experts.latent = 8; }),
      hash([](ModelConfig& c) { c.mixer.kind = RowMixer::Kind::ssm; }),
      hash([](ModelConfig& c) {
        c.mixer.kind = RowMixer::Kind::ssm, c.mixer.norm = RowMixer::Norm::none;
      }),
      hash([](ModelConfig& c) { c.mixer.kind = RowMixer::Kind::ssm, c.mixer.scales[2] = 2; }),
      hash([](ModelConfig& c) { c.logit_scale = 2; }),
      hash([](ModelConfig& c) { c.pre_norms = false; }),
      hash([](ModelConfig& c) { c.qk_norm = QkNorm::heads; }),
      hash([](ModelConfig& c) { c.qk_norm = QkNorm::whole; }),
      hash([](ModelConfig& c) { c.qk_norm = QkNorm::after_rope; }),
      hash([](ModelConfig& c) { c.rope.q_growth = 2, c.rope.q_growth_rows = 3; }),
      hash([](ModelConfig& c) { c.rope.q_growth = 2, c.rope.q_growth_rows = 4; }),
  };
  EXPECT_EQ(all.size(), 18u);
}

TEST(LlamaSource, FamiliesThatNormaliseResultsAlone) {
  using Rope = LayerAttention::Rope;
  RandomModelSpec s = small();
  s.n_layers = 8;
  for (const char* architecture : {"exaone4", "olmo2"}) {
    SCOPED_TRACE(architecture);
    s.architecture = architecture;
    s.window = 0;
    const bool whole = s.architecture == "olmo2";
    ModelConfig c = config_of(s);
    EXPECT_TRUE(c.post_norms && !c.pre_norms);
    EXPECT_EQ(c.qk_norm, whole ? QkNorm::whole : QkNorm::heads);
    EXPECT_TRUE(c.layers.empty()) << "without a window all layers rotate alike";
    s.window = 40;
    s.yarn_factor = 4;
    c = config_of(s);
    // A window hides nothing that is as long as the context, but its layers are still the others.
    RandomModelSpec wide = s;
    wide.window = wide.context;
    const ModelConfig all = config_of(wide);
    for (uint32_t i = 0; i < 8; ++i) {
      const bool local = i % 4 != 3;
      const Rope rope = whole   ? (local ? Rope::local : Rope::main)
                        : local ? Rope::main
                                : Rope::none;
      EXPECT_EQ(c.attention(i), (LayerAttention{local ? 40u : 0u, rope})) << i;
      EXPECT_EQ(all.attention(i), (LayerAttention{0, rope})) << i;
    }
    if (!whole) continue;
    EXPECT_FALSE(c.rope.freq_factors.empty());
    EXPECT_TRUE(c.local_rope.freq_factors.empty()) << "YaRN is for layers without a window";
    EXPECT_EQ(c.local_rope.attention_factor, 1.0);
  }
}

TEST(LlamaSource, FamiliesOfOtherQueries) {
  RandomModelSpec s = small();
  s.architecture = "mistral3";
  s.yarn_factor = 8;
  const ModelConfig c = config_of(s);
  EXPECT_EQ(c.rope.layout, RopeLayout::interleaved);
  EXPECT_FLOAT_EQ(static_cast<float>(c.rope.q_growth), 0.4f);
  EXPECT_EQ(c.rope.q_growth_rows, s.context / 8);
  const double grown = yarn_attention_factor(8) - 1;
  EXPECT_NEAR(c.rope.attention_factor, (1 + grown) / (1 + 0.5 * grown), 1e-6);
  EXPECT_EQ(q_growth(c.rope, s.context / 8 - 1), 1.0);
  EXPECT_NEAR(q_growth(c.rope, s.context / 8), 1 + 0.4 * std::log(2.0), 1e-6);
  s.rotary_dim = s.head_dim / 2;
  expect_error(random_model(s), BLEND_E_UNSUPPORTED, "temperature_scale");
  expect_error(random_model(small()).f32("llama.attention.temperature_scale", 1),
               BLEND_E_UNSUPPORTED, "temperature_scale");

  s = small();
  s.architecture = "hunyuan-dense";
  EXPECT_EQ(config_of(s).qk_norm, QkNorm::after_rope);
  // Its converter counts a dense layer as an expert.
  const char* const experts = "hunyuan-dense.expert_count";
  EXPECT_TRUE(open_bytes(random_model(s).u32(experts, 1).bytes()).is_ok());
  expect_error(random_model(s).u32(experts, 2), BLEND_E_UNSUPPORTED, experts);

  s = small();
  s.architecture = "seed_oss";
  EXPECT_TRUE(config_of(s).qkv_bias && !config_of(s).post_norms);
  s.architecture = "ernie4_5";
  EXPECT_EQ(config_of(s).rope.layout, RopeLayout::interleaved);
}

// Against transformers 5.23: the factors of Llama 3.2 1B (theta 5e5, 64 elements, factor 32) and of
// Qwen3's YaRN (theta 1e6, 128 elements, factor 4 of 32768), those of a few frequencies.
TEST(RopeScaling, FactorsOfKnownModels) {
  const auto llama = llama3_factors(64, 500000.0, {32, 1, 4, 8192});
  const auto yarn = yarn_factors(128, 1000000.0, {4, 32768, 32, 1, true});
  EXPECT_NEAR(llama[0], 1.000000f, 0.000010f);
  EXPECT_NEAR(llama[13], 1.000000f, 0.000010f);
  EXPECT_NEAR(llama[14], 1.000000f, 0.000010f);
  EXPECT_NEAR(llama[15], 1.651329f, 0.000017f);
  EXPECT_NEAR(llama[16], 3.292263f, 0.000033f);
  EXPECT_NEAR(llama[17], 9.666731f, 0.000097f);
  EXPECT_NEAR(llama[18], 31.999999f, 0.000320f);
  EXPECT_NEAR(llama[31], 32.000001f, 0.000320f);
  EXPECT_NEAR(yarn[0], 1.000000f, 4e-5f);
  EXPECT_NEAR(yarn[22], 1.000000f, 4e-5f);
  EXPECT_NEAR(yarn[23], 1.000000f, 4e-5f);
  EXPECT_NEAR(yarn[24], 1.046154f, 4e-5f);
  EXPECT_NEAR(yarn[30], 1.446809f, 4e-5f);
  EXPECT_NEAR(yarn[38], 2.956522f, 4e-5f);
  EXPECT_NEAR(yarn[40], 4.000000f, 4e-5f);
  EXPECT_NEAR(yarn[41], 4.000000f, 4e-5f);
  EXPECT_NEAR(yarn[63], 4.000000f, 4e-5f);
  EXPECT_NEAR(yarn_attention_factor(4), 1.138629436111989, 1e-12);
  EXPECT_EQ(yarn_attention_factor(1), 1.0);
}

TEST(LlamaSource, RefusesWhatItDoesNotCompute) {
  const GgufWriter base = random_model(small());
  const auto with = [&] { return GgufWriter(base); };
  expect_error(with().string("general.architecture", "mamba"), BLEND_E_UNSUPPORTED, "mamba");
  RandomModelSpec qwen2 = small();
  qwen2.architecture = "qwen2";
  expect_error(random_model(qwen2).u32("qwen2.expert_count", 8), BLEND_E_UNSUPPORTED,
               "qwen2.expert_count");
  EXPECT_TRUE(open_bytes(with().u32("llama.expert_count", 0).bytes()).is_ok());
  expect_error(with().string("tokenizer.ggml.model", "bert"), BLEND_E_UNSUPPORTED, "bert");
  expect_error(with().u32("llama.attention.value_length", 8), BLEND_E_UNSUPPORTED, "value_length");
  EXPECT_TRUE(open_bytes(with().u32("llama.attention.sliding_window", 512).bytes()).is_ok());
  expect_error(with().boolean("llama.attention.causal", false), BLEND_E_UNSUPPORTED, "causal");
  expect_error(with().f32("llama.logit_scale", 2), BLEND_E_UNSUPPORTED, "llama.logit_scale");
  expect_error(with().u32("split.no", 1).u32("split.count", 3), BLEND_E_UNSUPPORTED,
               "part 2 of a model in 3 files");
  EXPECT_TRUE(open_bytes(with().u32("split.no", 0).u32("split.count", 1).bytes()).is_ok());
  expect_error(GgufWriter().string("general.architecture", "llama"), BLEND_E_FORMAT, "no tensors");
  const std::string vector(64, '\0');
  for (const char* name : {"blk.1.attn_q.bias", "blk.1.ffn_gate_inp.weight", "output.bias",
                           "blk.0.attn_q_norm.weight", "blk.2.attn_norm.weight"}) {
    expect_error(with().tensor(name, test::kGgmlF32, {16}, vector), BLEND_E_UNSUPPORTED, name);
  }
  // One of several biases.
  expect_error(with().tensor("blk.0.attn_q.bias", test::kGgmlF32, {16}, vector), BLEND_E_FORMAT,
               "blk.0.attn_k.bias");
  EXPECT_TRUE(
      open_bytes(with().tensor("blk.0.attn_rot_embd.weight", 0, {16}, vector).bytes()).is_ok());
  // Named by the type and the tensor. 256 is the block of Q8_K, which files do not hold.
  RandomModelSpec wide = small();
  wide.d_model = 256;
  wide.head_dim = 64;
  expect_error(random_model(wide).tensor("blk.1.attn_v.weight", 15, {256, 128},
                                         std::string(128 * 292, '\0')),
               BLEND_E_UNSUPPORTED, "'blk.1.attn_v.weight' is Q8_K");
  expect_error(with().tensor("output.weight", 99, {16, 300}, vector), BLEND_E_UNSUPPORTED,
               "type 99");
}

// Some converters write a number for each layer, as llama.cpp reads them.
TEST(LlamaSource, OneNumberForEachLayer) {
  const GgufWriter base = random_model(small());
  const auto config = [](const GgufWriter& w) {
    auto source = open_bytes(w.bytes());
    EXPECT_TRUE(source.is_ok()) << source.status().message();
    Sha256Hasher hasher;
    if (source.is_ok()) hash_config((*source)->config(), hasher);
    return to_hex(hasher.finish());
  };
  auto opened = open_bytes(base.bytes());
  ASSERT_TRUE(opened.is_ok());
  const ModelConfig c = (*opened)->config();
  const std::pair<std::string, uint32_t> keys[] = {{"llama.attention.head_count", c.n_heads},
                                                   {"llama.attention.head_count_kv", c.n_kv_heads},
                                                   {"llama.feed_forward_length", c.d_ff}};
  for (const auto& [key, value] : keys) {
    const auto n = static_cast<int32_t>(value);
    std::vector<int32_t> list(c.n_layers, n);
    EXPECT_EQ(config(GgufWriter(base).i32s(key, list)), config(base)) << key;
    list.back() = n + 1;
    expect_error(GgufWriter(base).i32s(key, list), BLEND_E_UNSUPPORTED,
                 "key '" + key + "' is " + std::to_string(n) + " in layer 0 and " +
                     std::to_string(n + 1) + " in layer 1");
    list.back() = n;
    list.push_back(n);
    expect_error(GgufWriter(base).i32s(key, list), BLEND_E_FORMAT,
                 "key '" + key + "' has 3 entries for 2 layers");
    expect_error(GgufWriter(base).i32s(key, {}), BLEND_E_FORMAT, "has 0 entries");
    expect_error(GgufWriter(base).i32s(key, {0, 0}), BLEND_E_FORMAT, key);
    expect_error(GgufWriter(base).i32s(key, {-1, -1}), BLEND_E_FORMAT, key);
    expect_error(GgufWriter(base).f32s(key, {4, 4}), BLEND_E_FORMAT, key);
  }
  // llama.cpp takes one number alone for these.
  expect_error(GgufWriter(base).i32s("llama.embedding_length", {16, 16}), BLEND_E_UNSUPPORTED,
               "embedding_length");
}

TEST(LlamaSource, NamesMissingAndSenselessHyperparameters) {
  const GgufWriter base = random_model(small());
  for (const char* key :
       {"general.architecture", "llama.block_count", "llama.embedding_length",
        "llama.feed_forward_length", "llama.context_length", "llama.attention.head_count",
        "llama.attention.layer_norm_rms_epsilon", "tokenizer.ggml.model", "tokenizer.ggml.tokens",
        "tokenizer.ggml.scores"}) {
    expect_error(GgufWriter(base).erase_key(key), BLEND_E_FORMAT, key);
  }
  for (const char* key :
       {"llama.block_count", "llama.embedding_length", "llama.feed_forward_length",
        "llama.context_length", "llama.attention.head_count", "llama.attention.head_count_kv",
        "llama.attention.key_length", "llama.rope.dimension_count"}) {
    expect_error(GgufWriter(base).u32(key, 0), BLEND_E_FORMAT, key);
    expect_error(GgufWriter(base).u32(key, ~0u), BLEND_E_FORMAT, key);
    expect_error(GgufWriter(base).i32(key, -1), BLEND_E_FORMAT, key);
    expect_error(GgufWriter(base).string(key, "4"), BLEND_E_FORMAT, key);
  }
  expect_error(GgufWriter(base).u32("llama.context_length", (16u << 20) + 1), BLEND_E_FORMAT,
               "llama.context_length");
  expect_error(GgufWriter(base).u32("llama.attention.head_count_kv", 3), BLEND_E_FORMAT,
               "head_count_kv");
  expect_error(GgufWriter(base).u32("llama.rope.dimension_count", 3), BLEND_E_FORMAT, "even");
  expect_error(GgufWriter(base).u32("llama.rope.dimension_count", 6), BLEND_E_FORMAT, "at most");
  for (const float bad : {0.0f, -1.0f, std::nanf(""), std::numeric_limits<float>::infinity()}) {
    expect_error(GgufWriter(base).f32("llama.rope.freq_base", bad), BLEND_E_FORMAT, "freq_base");
    expect_error(GgufWriter(base).f32("llama.attention.layer_norm_rms_epsilon", bad),
                 BLEND_E_FORMAT, "epsilon");
  }
}

TEST(LlamaSource, ChecksEveryTensor) {
  const GgufWriter base = random_model(small());
  std::vector<std::string> names = {"token_embd.weight", "output_norm.weight"};
  for (const char* part : {"attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm",
                           "ffn_gate", "ffn_up", "ffn_down"}) {
    for (const char* layer : {"blk.0.", "blk.1."})
      names.push_back(std::string(layer) + part + ".weight");
  }
  for (const std::string& name : names) {
    expect_error(GgufWriter(base).erase_tensor(name), BLEND_E_FORMAT, "'" + name + "' is missing");
    expect_error(GgufWriter(base).tensor(name, test::kGgmlF32, {16, 3}, std::string(192, '\0')),
                 BLEND_E_FORMAT, "'" + name + "' has the shape [3, 16]");
  }
  expect_error(GgufWriter(base).tensor("output.weight", 0, {16, 3}, std::string(192, '\0')),
               BLEND_E_FORMAT, "output.weight");
  // Transposed: same size, other shape.
  expect_error(
      GgufWriter(base).tensor("blk.0.ffn_up.weight", 0, {24, 16}, std::string(24 * 16 * 4, '\0')),
      BLEND_E_FORMAT, "[16, 24]");
}

TEST(OpenModelSource, GoesByContent) {
  const test::TempDir dir;
  const std::string path = test::write_random_model(small(), dir.file("model.bin"));
  EXPECT_TRUE(open_model_source(path).is_ok());
  const auto expect = [](const std::string& p, int32_t code, const std::string& part) {
    const auto source = open_model_source(p);
    ASSERT_FALSE(source.is_ok());
    EXPECT_EQ(source.status().code(), code);
    EXPECT_NE(source.status().message().find(part), std::string::npos) << source.status().message();
  };
  test::write_file(dir.file("empty.gguf"), "");
  expect(dir.file("empty.gguf"), BLEND_E_FORMAT, "empty");
  test::write_file(dir.file("other.gguf"), "PK\3\4 and so on");
  expect(dir.file("other.gguf"), BLEND_E_FORMAT, "Hugging Face");
  test::write_file(dir.file("cut.gguf"), random_model(small()).bytes().substr(0, 20000));
  expect(dir.file("cut.gguf"), BLEND_E_FORMAT, "truncated");
  test::write_file(dir.file("pointer.gguf"), "version https://git-lfs.github.com/spec/v1\n");
  expect(dir.file("pointer.gguf"), BLEND_E_FORMAT, "git lfs pull");
  expect(dir.file("absent.gguf"), BLEND_E_NOT_FOUND, "cannot open");
  expect(dir.path(), BLEND_E_NOT_FOUND, "config.json");
}

TEST(OpenModelSource, RealWeights) {
  const std::string path = test::outside_data("models/stories260K.gguf");
  if (path.empty()) GTEST_SKIP() << test::kNoOutsideData;
  const auto opened = open_model_source(path);
  ASSERT_TRUE(opened.is_ok()) << opened.status().message();
  const ModelConfig& c = opened.value()->config();
  EXPECT_EQ(c.n_layers, 5u);
  EXPECT_EQ(c.d_model, 64u);
  EXPECT_EQ(c.n_heads, 8u);
  EXPECT_EQ(c.n_kv_heads, 4u);
  EXPECT_EQ(c.n_vocab, 512u);
  EXPECT_EQ(c.context_length, 512u);
  EXPECT_EQ(opened.value()->n_parameters(), 260032u);
}

}  // namespace
}  // namespace blend
