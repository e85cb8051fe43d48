// ModelConfig: the computation of a decoder-only Transformer, independent of the file format. One
// forward pass (engine/forward.h) reads it; a family of models only differs in how it is filled in.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "formats/half.h"
#include "formats/weight_blocks.h"

namespace blend {

// How RoPE pairs the elements of a head.
enum class RopeLayout : uint8_t {
  interleaved,  // (0,1), (2,3), ... : GGUF `llama` (ggml NORM)
  half_split,   // (0,d/2), (1,d/2+1), ... : Hugging Face, ggml NEOX
};

struct RopeParams {
  RopeLayout layout = RopeLayout::interleaved;
  uint32_t rotary_dim = 0;  // elements of a head that rotate; <= head_dim, even
  double theta = 10000.0;
  double linear_scale = 1.0;        // positions are divided by it
  std::vector<float> freq_factors;  // [rotary_dim/2] or empty: frequencies are divided by them
                                    // (Llama 3.1, YaRN, LongRoPE: model/rope_scaling.h)
  // Also multiplies the rotated elements of Q and of K (YaRN, LongRoPE). Stored K never has it; a
  // host's rotated K does.
  double attention_factor = 1.0;
  // Q alone of position p is also multiplied by 1 + q_growth * log(1 + floor(p / q_growth_rows))
  // (Mistral 3); q_growth 0: it is not. The whole head rotates then.
  double q_growth = 0;
  uint32_t q_growth_rows = 0;

  bool operator==(const RopeParams&) const = default;
};

// The factor on Q at a position (see RopeParams::q_growth).
inline double q_growth(const RopeParams& rope, uint64_t position) {
  if (rope.q_growth == 0) return 1;
  const uint64_t steps = position / rope.q_growth_rows;  // rounded down
  return 1 + rope.q_growth * std::log1p(static_cast<double>(steps));
}

// Which rows the rows of one layer see: layers of one model may differ.
struct LayerAttention {
  enum class Rope : uint8_t {
    main,   // ModelConfig::rope
    local,  // ModelConfig::local_rope (Gemma 3's windowed layers)
    none,   // K and Q are not rotated (NoPE: SmolLM3)
  };
  uint32_t window = 0;  // row i sees the rows j with pos(i) - window < pos(j); 0: all before it
  Rope rope = Rope::main;

  bool operator==(const LayerAttention&) const = default;
};

// Activation of the feed-forward's gate.
enum class Activation : uint8_t {
  silu,
  gelu_tanh,  // GELU by its tanh form (Gemma)
  // gate * sigmoid(1.702 gate) * (up + 1), gate at most 7, up between 7 and -7 (gpt-oss)
  clamped_silu,
};

// Whether Q and K are normalised, and how.
enum class QkNorm : uint8_t {
  none,
  heads,       // each head by itself, before RoPE (Qwen3)
  whole,       // all heads of a row as one, before RoPE (OLMo 2)
  after_rope,  // each head by itself, after RoPE (Hunyuan)
};

// Feed-forwards that are mixtures of experts (Shazeer et al. 2017): a router scores a layer's
// experts for each row, and the row goes through those with the highest scores. Their results are
// summed up, each times its weight, which is its score.
struct Experts {
  uint32_t count = 0;        // of a layer; 0: the model has none
  uint32_t used = 0;         // that a row goes through
  uint32_t d_ff = 0;         // inner width of one
  uint32_t shared_d_ff = 0;  // inner width of the shared ones together, which every row goes
                             // through too; 0: none
  bool sigmoid = false;     // a score is the sigmoid of the router's logit, not all logits' softmax
  bool normalised = false;  // the weights of a row are divided by their sum
  bool choice_bias = false;  // each expert has a bias that its score has for the choice alone
  bool router_bias = false;  // the router's logits have a bias
  bool biases = false;       // gate, up and down of each expert have
  float scale = 1;           // of the weights
  // Experts are in `groups` of as many neighbours each. A row chooses among those of its best
  // `used_groups`; a group is as good as its two best experts' scores together (DeepSeek-V3).
  uint32_t groups = 1;
  uint32_t used_groups = 1;
  std::vector<bool> dense;  // [n_layers]: the layers without experts; empty: there are none

  bool operator==(const Experts&) const = default;
};

// Layers that convolve over a few rows instead of attending to all (LFM2). With B, C and X three
// projections of a row and u = B * X, element by element,
//   y_t = C_t * (w_0 u_t + w_1 u_(t-1) + ...)      of `taps` terms; u before the prompt is 0
// takes the place of attention. Of an earlier row they need its u alone, which caches and records
// keep instead of K and V.
struct ShortConv {
  uint32_t taps = 0;         // 0: the model has no such layers
  std::vector<bool> layers;  // [n_layers]: those that convolve; empty: none does

  bool has(uint32_t layer) const { return layer < layers.size() && layers[layer]; }
  bool operator==(const ShortConv&) const = default;
};

// The first layer from `from` on whose K and V depend on rows far away: it attends, and so does one
// before it. n_layers where there is none.
inline uint32_t dependent_layer(const std::vector<bool>& convolves, uint32_t n_layers,
                                uint32_t from) {
  const auto attends = [&](uint32_t i) { return i >= convolves.size() || !convolves[i]; };
  bool seen = false;
  for (uint32_t i = 0; i < n_layers; ++i) {
    if (attends(i) && seen && i >= from) return i;
    seen = seen || attends(i);
  }
  return n_layers;
}

// Whether groups divide the experts, have two experts at least, and leave enough of them.
inline bool experts_fit_groups(const Experts& e) {
  if (e.groups <= 1) return e.used_groups <= 1;
  const uint32_t size = e.count / e.groups;
  return e.count % e.groups == 0 && size >= 2 && e.used_groups <= e.groups &&
         uint64_t{e.used_groups} * size >= e.used;
}

// How the hidden states of a text become its embedding.
enum class Pooling : uint8_t {
  unsaid,  // the file does not say: mean
  mean,
  last,   // the last row's
  first,  // the first row's
  other,  // a way that libblend does not know
};

struct ModelConfig {
  std::string architecture;  // "llama", "qwen2", ... as the file has it; adapters go by it
  std::string name;
  uint32_t n_layers = 0;
  uint32_t d_model = 0;
  uint32_t n_heads = 0;
  uint32_t n_kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t d_ff = 0;
  uint32_t n_vocab = 0;
  uint32_t context_length = 0;
  float rms_eps = 1e-5f;
  RopeParams rope;
  DType weight_dtype = DType::f32;            // of the matrices; f16 where they are quantized
  BlockType weight_blocks = BlockType::none;  // of the matrices

  // ---- What families add to a plain Llama. The defaults are a plain Llama.
  // When a model is asked for more than this many rows, `long_rope` replaces `rope`
  // (LongRoPE); 0: never. Positions are rotated by one or the other, never by both.
  uint32_t short_context = 0;
  RopeParams long_rope;
  RopeParams local_rope;               // unused without a layer that names it
  std::vector<LayerAttention> layers;  // [n_layers]; empty: all like LayerAttention{}
  // Tensors besides those of a plain Llama: model/tensor_table.h has their shapes.
  bool qkv_bias = false;       // of Q, K and V (Qwen2)
  bool attn_out_bias = false;  // of the output projection
  bool ffn_bias = false;       // of gate, up and down
  QkNorm qk_norm = QkNorm::none;
  // Each head has a score that is as if of one more key, without a value (attention sinks).
  bool attn_sinks = false;
  bool pre_norms = true;      // attention and the feed-forward read normalised rows (not in OLMo 2)
  bool post_norms = false;    // attention's and the feed-forward's results are normalised before
                              // they are added (Gemma 2)
  float norm_offset = 0;      // added to every weight of a norm as it is loaded (Gemma: 1)
  float embedding_scale = 1;  // of the embedding's rows (Gemma: sqrt(d_model))
  float residual_scale = 1;   // of attention's and the feed-forward's results (Granite)
  float logit_scale = 1;      // of logits (Granite)
  float attn_scale = 0;       // of attention scores; 0: 1 / sqrt(head_dim)
  float attn_softcap = 0;     // scores become cap * tanh(score / cap); 0: off
  float logit_softcap = 0;    // the same of logits
  Activation activation = Activation::silu;
  Experts experts;
  ShortConv conv;
  Pooling pooling = Pooling::unsaid;  // no part of the fingerprint: K and V do not depend on it

  uint32_t q_dim() const { return n_heads * head_dim; }
  uint32_t kv_dim() const { return n_kv_heads * head_dim; }
  uint32_t group() const { return n_heads / n_kv_heads; }  // query heads per KV head
  // Elements that a cache keeps of a row in a layer: K | V, or u where the layer convolves.
  uint32_t row_dim(uint32_t layer) const { return conv.has(layer) ? d_model : 2 * kv_dim(); }
  uint32_t widest_row() const {
    return conv.taps != 0 ? std::max(d_model, 2 * kv_dim()) : 2 * kv_dim();
  }
  uint64_t all_row_dims() const {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n_layers; ++i) sum += row_dim(i);
    return sum;
  }
  // The number of layers that attend.
  uint32_t n_attending() const {
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_layers; ++i) n += conv.has(i) ? 0 : 1;
    return n;
  }
  // For a cache that holds one layer at a time: one layer of each kind, and which of them stands
  // for a layer.
  ModelConfig one_of_each() const {
    ModelConfig c = *this;
    c.n_layers = conv.taps != 0 ? 2 : 1;
    if (conv.taps != 0) c.conv.layers = {false, true};
    return c;
  }
  uint32_t kind_of(uint32_t layer) const { return conv.has(layer) ? 1 : 0; }
  LayerAttention attention(uint32_t layer) const {
    return layers.empty() ? LayerAttention{} : layers[layer];
  }
  // Whether a layer's feed-forward is a mixture of experts.
  bool has_experts(uint32_t layer) const {
    return experts.count != 0 && (experts.dense.empty() || !experts.dense[layer]);
  }
  // Inner width of what every row of a layer goes through; 0: nothing.
  uint32_t common_d_ff(uint32_t layer) const {
    return has_experts(layer) ? experts.shared_d_ff : d_ff;
  }
  // Inner width of all that one row goes through, experts included: mean over layers.
  double row_d_ff() const {
    if (experts.count == 0) return d_ff;
    double sum = 0;
    for (uint32_t i = 0; i < n_layers; ++i) {
      sum += common_d_ff(i);
      if (has_experts(i)) sum += static_cast<double>(experts.used) * experts.d_ff;
    }
    return sum / n_layers;
  }
  float score_scale() const {
    return attn_scale != 0 ? attn_scale
                           : static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
  }
};

}  // namespace blend
