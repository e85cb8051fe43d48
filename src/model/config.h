// ModelConfig: the computation of a decoder-only Transformer, independent of the file format. One
// forward pass (engine/forward.h) reads it; a family of models only differs in how it is filled in.
#pragma once

#include <algorithm>
#include <array>
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
  // Where layers have heads of their own (Gemma 4); 0: the model's.
  uint32_t head_dim = 0;
  uint32_t n_kv_heads = 0;
  bool k_is_v = false;  // V is made by K's matrix; it is not normalised and rotated as K is

  bool operator==(const LayerAttention&) const = default;
};

// Activation of the feed-forward's gate.
enum class Activation : uint8_t {
  silu,
  gelu_tanh,  // GELU by its tanh form (Gemma)
  // gate * sigmoid(1.702 gate) * (up + 1), gate at most 7, up between 7 and -7 (gpt-oss)
  clamped_silu,
  relu2,  // max(up, 0)^2: there is no gate (Nemotron-H)
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
  uint32_t count = 0;  // of a layer; 0: the model has none
  uint32_t used = 0;   // that a row goes through
  uint32_t d_ff = 0;   // inner width of one
  // Width of the rows that experts read and write: one matrix makes them of the layer's rows, and
  // another the layer's result of theirs (Nemotron 3 Super). 0: they are the layer's rows.
  uint32_t latent = 0;
  uint32_t shared_d_ff = 0;  // inner width of the shared ones together, which every row goes
                             // through too; 0: none
  // The shared ones' result is multiplied by the sigmoid of the row's product with a vector
  // (Qwen2 MoE, Qwen3.5).
  bool shared_weighed = false;
  bool sigmoid = false;     // a score is the sigmoid of the router's logit, not all logits' softmax
  bool normalised = false;  // the weights of a row are divided by their sum
  bool choice_bias = false;  // each expert has a bias that its score has for the choice alone
  bool router_bias = false;  // the router's logits have a bias
  bool biases = false;       // gate, up and down of each expert have
  float scale = 1;           // of the weights
  // Experts are in `groups` of as many neighbours each. A row chooses among those of its best
  // `used_groups`; a group is as good as its two best experts' scores together (DeepSeek-V3), or as
  // its best one's (DeepSeek-V2).
  uint32_t groups = 1;
  uint32_t used_groups = 1;
  bool groups_by_best = false;
  // A layer has its dense feed-forward too, and the two results are added. Both, and the router,
  // read rows normed with weights of their own; both results are normed, and experts' weights are
  // also multiplied by a factor of each (Gemma 4).
  bool beside_dense = false;
  std::vector<bool> dense;  // [n_layers]: the layers without experts; empty: there are none

  bool operator==(const Experts&) const = default;
};

// Layers that mix rows in another way than by attention. All that they need of an earlier row is
// one row of another kind, which caches and records keep instead of K | V.
struct RowMixer {
  enum class Kind : uint8_t {
    none,
    // Short convolutions (LFM2). With B, C and X three projections of a row and u = B * X, element
    // by element, y_t = C_t * (w_0 u_t + w_1 u_(t-1) + ...) of `taps` terms. Row: u, [d_model].
    conv,
    // Gated DeltaNet (Yang et al. 2025; Qwen3.5). q | k | v, a projection of a row, go through such
    // a convolution and SiLU; q and k are then of unit length in each head. Each value head has a
    // state S, [k_dim, v_dim]:
    //   S = a_t S;  S += k_t (b_t (v_t - k_t S));  y_t = q_t S / sqrt(k_dim)
    // Row: q | k | v before the convolution, then b and log(a) of each value head.
    delta,
    // Mamba-2 (Dao & Gu 2024; Granite 4 H). x | B | C, a projection of a row, go through such a
    // convolution, which has a bias, and SiLU. x is of value heads, each of which reads B and C of
    // a key head and has a state S, [k_dim, v_dim]:
    //   S = exp(-A dt_t) S + B_t (dt_t x_t);  y_t = C_t S + D x_t
    // Row: x | B | C before the convolution, then dt of each value head, which is above 0.
    ssm,
  };
  Kind kind = Kind::none;
  uint32_t taps = 0;  // of the convolutions; what is before the prompt is 0
  // Of delta and ssm.
  uint32_t k_heads = 0, v_heads = 0;  // the first divides the second
  uint32_t k_dim = 0, v_dim = 0;
  // Value head h reads key head h % k_heads, as converters to GGUF order them; else the value heads
  // of a key head are neighbours.
  bool tiled = false;
  bool decay_is_log = false;  // its tensor of decays has log(x) where others have -x
  bool taps_bias = false;     // ssm's convolution has one
  // Where ssm normalises y, the value heads of a key head together: after z has multiplied it,
  // before that, or nowhere.
  enum class Norm : uint8_t { after_gate, before_gate, none };
  Norm norm = Norm::after_gate;
  // What ssm's projections to z, x, B, C and dt are multiplied by (Falcon-H1).
  std::array<float, 5> scales = {1, 1, 1, 1, 1};
  std::vector<bool> layers;  // [n_layers]: those that mix so; empty: none does

  bool any() const { return kind != Kind::none; }
  bool has(uint32_t layer) const { return layer < layers.size() && layers[layer]; }
  uint32_t qkv_dim() const { return 2 * k_heads * k_dim + v_heads * v_dim; }
  uint32_t value_dim() const { return v_heads * v_dim; }
  // Whether rows pass through states, so that each depends on all before it.
  bool scans() const { return kind == Kind::delta || kind == Kind::ssm; }
  // Elements of a row that is kept where they do.
  uint32_t row_dim() const { return qkv_dim() + (kind == Kind::delta ? 2 : 1) * v_heads; }
  // Of a row that passes through the states: their decay, what is added, and delta's k S.
  double scan_flops() const {
    return scans() ? (kind == Kind::delta ? 5.0 : 3.0) * value_dim() * k_dim : 0;
  }
  bool operator==(const RowMixer&) const = default;
};

// The first layer from `from` on whose K and V depend on rows far away: it attends, and before it
// is another that does, or one whose state reaches as far. n_layers where there is none.
inline uint32_t dependent_layer(const RowMixer& mixer, uint32_t n_layers, uint32_t from) {
  bool seen = false;
  for (uint32_t i = 0; i < n_layers; ++i) {
    if (!mixer.has(i) && seen && i >= from) return i;
    seen = seen || !mixer.has(i) || mixer.scans();
  }
  return n_layers;
}

// Attention over latent rows (MLA, DeepSeek-V2; Liu et al. 2024). Of a row each layer keeps k,
// which rotates, and c, which is normed. The key of a head is k and A c, its value B c, with
// matrices A and B of each head. Heads' keys and values are never made: (q, p) meets (k, A c) as
// (q, A^T p) meets (k, c), so one key, k | c, serves all heads, and its last part is their value.
//
// Caches, records and all that works on rows have k | c in two halves, as K and V of one KV head;
// k is in the first. Attention alone knows better.
struct Latent {
  uint32_t rank = 0;    // of c; 0: the model has none
  uint32_t rope = 0;    // of k, and of a head's q
  uint32_t nope = 0;    // of a head's p
  uint32_t value = 0;   // of a head's value
  uint32_t q_rank = 0;  // Q is made of a normed latent of its own; 0: of the row
  float eps = 0;        // of both latents' norms

  bool any() const { return rank != 0; }
  uint32_t row() const { return rope + rank; }
  uint32_t q_dim() const { return nope + rope; }  // p | q of a head, as the model makes them
  bool operator==(const Latent&) const = default;
};

// Whether groups divide the experts, have two experts at least, and leave enough of them.
inline bool experts_fit_groups(const Experts& e) {
  if (e.groups <= 1) return e.used_groups <= 1;
  const uint32_t size = e.count / e.groups;
  return e.count % e.groups == 0 && size >= 2 && e.used_groups >= 1 && e.used_groups <= e.groups &&
         uint64_t{e.used_groups} * size >= e.used;
}

// What the results of a layer are multiplied by before they are added to its rows.
struct ResultScales {
  float attention = 1;
  float mixer = 1;
  float feed_forward = 1;
  bool operator==(const ResultScales&) const = default;
};

// The heads of a layer.
struct Heads {
  uint32_t n = 0;
  uint32_t n_kv = 0;
  uint32_t dim = 0;  // of one

  uint32_t q_dim() const { return n * dim; }
  uint32_t kv_dim() const { return n_kv * dim; }
};

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
  // The first layers have K and V of their own. Each later one attends over those of the last of
  // them that is like it (Gemma 4), so nothing is kept for it. 0: all layers have.
  uint32_t own_kv = 0;
  // [n_layers] where they differ, 0 where a layer has no feed-forward; empty: all are d_ff.
  std::vector<uint32_t> d_ffs;
  // [n_layers] where the file counts what mixes rows and the feed-forward as layers of their own
  // (Nemotron-H): its number of the first; that of the second is the next. Empty: it does not.
  std::vector<uint32_t> blocks;
  // Layers are in pairs, of which the file counts each as one: the first attends, the second does
  // not, reads what the first read, and has the feed-forward (Falcon-H1).
  bool paired = false;
  // Tensors besides those of a plain Llama: model/tensor_table.h has their shapes.
  bool qkv_bias = false;       // of Q, K and V (Qwen2)
  bool attn_out_bias = false;  // of the output projection
  bool ffn_bias = false;       // of gate, up and down
  QkNorm qk_norm = QkNorm::none;
  // Q has a gate beside it in each head: attention's result is multiplied by its sigmoid (Qwen3.5).
  bool attn_gate = false;
  // Each head has a score that is as if of one more key, without a value (attention sinks).
  bool attn_sinks = false;
  bool v_norm = false;  // each head of V is divided by its size; qk_norm is `heads` (Gemma 4)
  // After its feed-forward a layer adds what its own embedding of the row's token says, of
  // input_dim elements, and then multiplies all by a number (Gemma 4). 0, false: it does not.
  uint32_t input_dim = 0;
  bool layer_scales = false;
  uint32_t input_vocab = 0;  // rows of that table; later tokens use row 0. 0: n_vocab
  // A row has this many streams x_s of d_model elements; attention and the feed-forward compute
  // the first (AltUp: Baykal et al. 2023). With m(x) = tanh(R norm(x) / d_model), and R, P and C
  // matrices of a layer:
  //   before the layer  x_s += sum over t of (P m(x_0))_(s, t) x_t
  //   after it          x_s += (1 + (C m(y))_s) (y - x_0), where y is what became of x_0
  // A layer's own embedding is added to all streams but the first. At the beginning a matrix makes
  // each of these from the token's embedding, and after the last layer each goes through another;
  // both times it is scaled to the size of the first. The mean of all makes the logits.
  uint32_t n_streams = 1;
  // After attention a layer adds what attention read, and the normed product of that with two
  // matrices of this rank, and divides the sum by the root of 2 (Laurel: Menghani et al. 2024).
  // 0: it does not.
  uint32_t laurel_rank = 0;
  // [n_layers]: a layer subtracts the mean of a row's gate, and this many of its standard
  // deviations, from the gate, and replaces what is then below 0 by 0 (Spark Transformer: You et
  // al. 2025). -infinity: it does not. Empty: none does.
  std::vector<float> gate_cuts;
  bool pre_norms = true;      // attention and the feed-forward read normalised rows (not in OLMo 2)
  bool post_norms = false;    // attention's and the feed-forward's results are normalised before
                              // they are added (Gemma 2)
  float norm_offset = 0;      // added to every weight of a norm as it is loaded (Gemma: 1)
  float embedding_scale = 1;  // of the embedding's rows (Gemma: sqrt(d_model))
  ResultScales result_scales;  // Granite's are one number, Falcon-H1's are not
  float gate_scale = 1;        // of the feed-forward's gate, before its activation (Falcon-H1)
  float logit_scale = 1;       // of logits (Granite)
  float attn_scale = 0;        // of attention scores; 0: 1 / sqrt(head_dim)
  float attn_softcap = 0;      // scores become cap * tanh(score / cap); 0: off
  float logit_softcap = 0;     // the same of logits
  Activation activation = Activation::silu;
  Experts experts;
  RowMixer mixer;
  // n_kv_heads is 1 and head_dim half of a row then.
  Latent latent;
  // Rows see those after them too, of a layer's window as many as before them (EmbeddingGemma).
  // Such a model embeds and does nothing else.
  bool sees_ahead = false;
  Pooling pooling = Pooling::unsaid;  // no part of the fingerprint: K and V do not depend on it

  uint32_t q_dim() const { return n_heads * head_dim; }
  uint32_t kv_dim() const { return n_kv_heads * head_dim; }
  uint32_t group() const { return n_heads / n_kv_heads; }  // query heads per KV head
  Heads heads(uint32_t layer) const {
    const LayerAttention a = attention(layer);
    return {n_heads, a.n_kv_heads != 0 ? a.n_kv_heads : n_kv_heads,
            a.head_dim != 0 ? a.head_dim : head_dim};
  }
  // Elements of a head's Q where it meets a key.
  uint32_t key_dim(uint32_t layer) const { return latent.any() ? latent.row() : heads(layer).dim; }
  // Of a row of such Q, and of attention's result.
  uint32_t asked_dim(uint32_t layer) const { return n_heads * key_dim(layer); }
  // Elements that attention's output projection reads.
  uint32_t result_dim(uint32_t layer) const {
    return latent.any() ? n_heads * latent.value : heads(layer).q_dim();
  }
  uint32_t widest_q() const {
    uint32_t most = asked_dim(0);
    for (uint32_t i = 0; i < layers.size(); ++i) most = std::max(most, asked_dim(i));
    return most;
  }
  // The layers that keep something of a row: those before the first that shares K and V.
  uint32_t n_kept() const { return own_kv == 0 ? n_layers : std::min(own_kv, n_layers); }
  // The layer whose K and V a layer attends over.
  uint32_t kv_layer(uint32_t layer) const {
    if (layer < n_kept()) return layer;
    uint32_t of = n_kept();
    while (of > 1 && attention(of - 1) != attention(layer)) --of;
    return of - 1;
  }
  // Whether attending layers keep rows of different widths, or some keep none.
  bool attends_unlike() const {
    const auto unlike = [](const LayerAttention& a) { return a.head_dim + a.n_kv_heads != 0; };
    return n_kept() < n_layers || std::any_of(layers.begin(), layers.end(), unlike);
  }
  // Rows of the projection to Q: Q itself, and its gate.
  uint32_t q_rows(uint32_t layer) const {
    if (latent.any()) return n_heads * latent.q_dim();
    return (attn_gate ? 2 : 1) * heads(layer).q_dim();
  }
  // Multiply-adds that make a row's Q as it meets keys, without any gate; and those that make of
  // attention's result what is added to the row.
  double q_products(uint32_t layer) const {
    const double d = d_model, rows = latent.any() ? q_rows(layer) : heads(layer).q_dim();
    if (!latent.any()) return d * rows;
    const double low = latent.q_rank, heads_of = n_heads;
    return (low != 0 ? low * (d + rows) : d * rows) + heads_of * latent.nope * latent.rank;
  }
  double result_products(uint32_t layer) const {
    const double out = result_dim(layer), d = d_model;
    return out * (d + latent.rank);
  }
  // Multiply-adds of a row in a layer outside attention and the feed-forward: for the layer's own
  // embedding, for Laurel, and for streams, whose router runs before the layer and after it.
  double other_products() const {
    const double d = d_model, n = n_streams;
    return d * (3.0 * input_dim + 2.0 * laurel_rank + (n > 1 ? n * (n + 2) : 0));
  }
  // Those that make a row's other streams before the first layer; as many join them after the last.
  double stream_products() const { return (n_streams - 1.0) * d_model * d_model; }
  // Whether a layer reads the normalised rows that the layer before it read.
  bool reads_as_before(uint32_t layer) const { return paired && layer % 2 == 1; }
  // Elements of a row that experts read, and of one that they write.
  uint32_t expert_dim() const { return experts.latent != 0 ? experts.latent : d_model; }
  // Elements of a row's result in a layer that does not attend, before its output projection.
  uint32_t mixed_dim() const {
    return mixer.scans() ? mixer.value_dim() : mixer.any() ? d_model : 0;
  }
  // Elements of the row that is kept there.
  uint32_t mixer_row_dim() const { return mixer.scans() ? mixer.row_dim() : mixed_dim(); }
  // Elements that a cache keeps of a row in a layer: K | V, or those.
  uint32_t row_dim(uint32_t layer) const {
    return mixer.has(layer) ? mixer_row_dim() : 2 * heads(layer).kv_dim();
  }
  uint32_t widest_row() const {
    uint32_t most = std::max(mixer_row_dim(), 2 * kv_dim());
    for (uint32_t i = 0; i < layers.size(); ++i) most = std::max(most, row_dim(i));
    return most;
  }
  uint64_t all_row_dims() const {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n_kept(); ++i) sum += row_dim(i);
    return sum;
  }
  // The number of layers that attend and keep K and V.
  uint32_t n_attending() const {
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_kept(); ++i) n += mixer.has(i) ? 0 : 1;
    return n;
  }
  // For a cache that holds one layer at a time: one layer of each kind, and which of them stands
  // for a layer. A layer that shares K and V finds there those of the last layer of its kind.
  ModelConfig one_of_each() const {
    ModelConfig c = *this;
    if (attends_unlike()) {
      c.layers = kinds();
      c.n_layers = static_cast<uint32_t>(c.layers.size());
      c.own_kv = 0;
      return c;
    }
    c.n_layers = mixer.any() ? 2 : 1;
    if (mixer.any()) c.mixer.layers = {false, true};
    return c;
  }
  uint32_t kind_of(uint32_t layer) const {
    if (!attends_unlike()) return mixer.has(layer) ? 1 : 0;
    const std::vector<LayerAttention> all = kinds();
    return static_cast<uint32_t>(std::find(all.begin(), all.end(), attention(layer)) - all.begin());
  }
  // The ways in which layers attend.
  std::vector<LayerAttention> kinds() const {
    std::vector<LayerAttention> all;
    for (uint32_t i = 0; i < n_layers; ++i) {
      if (std::find(all.begin(), all.end(), attention(i)) == all.end()) all.push_back(attention(i));
    }
    return all;
  }
  LayerAttention attention(uint32_t layer) const {
    return layers.empty() ? LayerAttention{} : layers[layer];
  }
  // Whether a layer's feed-forward is a mixture of experts.
  bool has_experts(uint32_t layer) const {
    return experts.count != 0 && (experts.dense.empty() || !experts.dense[layer]);
  }
  // Whether a layer has a feed-forward that is no expert.
  bool has_dense(uint32_t layer) const { return !has_experts(layer) || experts.beside_dense; }
  // Inner width of what every row of a layer goes through; 0: nothing.
  uint32_t common_d_ff(uint32_t layer) const {
    if (!has_dense(layer)) return experts.shared_d_ff;
    return d_ffs.empty() ? d_ff : d_ffs[layer];
  }
  bool feeds(uint32_t layer) const { return has_experts(layer) || common_d_ff(layer) != 0; }
  bool cuts_gate(uint32_t layer) const {
    return !gate_cuts.empty() && std::isfinite(gate_cuts[layer]);
  }
  uint32_t n_input_vocab() const { return input_vocab != 0 ? input_vocab : n_vocab; }
  // Matrices of a feed-forward: gate, up and down, or two of them.
  uint32_t ffn_matrices() const { return activation == Activation::relu2 ? 2 : 3; }
  // Inner width of all that one row goes through, experts included: mean over the first n layers.
  double row_d_ff(uint32_t n) const {
    if (experts.count == 0 && d_ffs.empty()) return d_ff;
    double sum = 0;
    for (uint32_t i = 0; i < n; ++i) {
      sum += common_d_ff(i);
      if (has_experts(i)) sum += static_cast<double>(experts.used) * experts.d_ff;
    }
    return sum / n;
  }
  float score_scale() const {
    return attn_scale != 0 ? attn_scale
                           : static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
  }
};

}  // namespace blend
