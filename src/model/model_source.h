// ModelSource: an opened model file: description, tokenizer and tensors, before any backend has
// packed the weights. Formats (GGUF, Hugging Face directories) implement open functions that return
// it; code above this interface does not know which format it was.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "base/threads/cancel.h"
#include "formats/weight_blocks.h"
#include "model/config.h"
#include "model/tokenizer.h"

namespace blend {

struct LoraAdapter;

// A tensor in mapped memory; checked to lie inside the file. Valid while its ModelSource lives.
struct TensorView {
  std::string name;  // as in the file, for messages
  DType dtype = DType::f32;
  std::vector<int64_t> shape;       // row-major: [rows, cols] for matrices, [n] for vectors
  const std::byte* data = nullptr;  // maybe unaligned to the element
  // Quantized: rows are made of these blocks, `dtype` is f32, which they decode to.
  BlockType blocks = BlockType::none;

  int64_t elements() const {
    int64_t n = 1;
    for (const int64_t s : shape) n *= s;
    return n;
  }
  int64_t cols() const { return shape.empty() ? 1 : shape.back(); }  // of a row
  int64_t rows() const { return cols() == 0 ? 0 : elements() / cols(); }
  size_t row_bytes() const { return weight_row_bytes(dtype, blocks, static_cast<size_t>(cols())); }
  size_t bytes() const { return static_cast<size_t>(rows()) * row_bytes(); }
  const std::byte* row(int64_t i) const { return data + static_cast<size_t>(i) * row_bytes(); }
};

// Role of a tensor; `layer` is 0 for those that are is_of_model(). Norms and the roles after
// ffn_down exist where the config says so; tensor_table.h has the shapes of all.
enum class TensorRole : uint8_t {
  embedding,       // [n_vocab, d_model]
  output_norm,     // [d_model]
  output,          // [n_vocab, d_model]; the embedding where they are tied
  attn_norm,       // [d_model]
  attn_q,          // [n_heads*head_dim, d_model]; heads are the layer's (ModelConfig::heads); with
                   // attn_gate Q and its gate of each head
  attn_k,          // [n_kv_heads*head_dim, d_model]
  attn_v,          // [n_kv_heads*head_dim, d_model]
  attn_out,        // [d_model, n_heads*head_dim]
  ffn_norm,        // [d_model]
  ffn_gate,        // [d_ff, d_model]
  ffn_up,          // [d_ff, d_model]
  ffn_down,        // [d_model, d_ff]
  attn_q_bias,     // [n_heads*head_dim]
  attn_k_bias,     // [n_kv_heads*head_dim]
  attn_v_bias,     // [n_kv_heads*head_dim]
  attn_out_bias,   // [d_model]
  attn_q_norm,     // [head_dim], or [n_heads*head_dim]: QkNorm
  attn_k_norm,     // [head_dim], or [n_kv_heads*head_dim]
  attn_sinks,      // [n_heads]
  attn_post_norm,  // [d_model]
  ffn_gate_bias,   // [d_ff]
  ffn_up_bias,     // [d_ff]
  ffn_down_bias,   // [d_model]
  ffn_post_norm,   // [d_model]
  conv_b,          // [d_model, d_model]; like the next four of a layer that convolves
  conv_c,          // [d_model, d_model]
  conv_x,          // [d_model, d_model]
  conv_taps,       // [d_model, mixer.taps]: the last is that of the row itself
  conv_out,        // [d_model, d_model]
  delta_qkv,       // [qkv_dim, d_model]: q, k, v; like the next three of a Gated DeltaNet
  delta_z,         // [value_dim, d_model]
  delta_b,         // [v_heads, d_model]
  delta_a,         // [v_heads, d_model]
  scan_taps,       // [qkv_dim, taps], as conv_taps; like the next four of every layer with states
  scan_decay,      // [v_heads]: RowMixer::decay_is_log
  scan_bias,       // [v_heads]: of delta_a, or ssm_dt
  scan_norm,       // [v_dim], or of a Mamba-2 [value_dim]
  scan_out,        // [d_model, value_dim]
  ssm_z,           // [value_dim, d_model]: the gate; like the next four of a Mamba-2
  ssm_xbc,         // [qkv_dim, d_model]: x, B, C
  ssm_dt,          // [v_heads, d_model]
  ssm_taps_bias,   // [qkv_dim]
  ssm_skip,        // [v_heads]: D
  latent_kv,       // [rank + rope, d_model]: c | k; like the next three where config.latent is any
  latent_kv_norm,  // [rank]
  latent_k,        // [n_heads * rank, nope]: A^T of each head
  latent_v,        // [n_heads * value, rank]: B of each head
  latent_q,        // [q_rank, d_model]: like the next with q_rank alone; attn_q reads it then
  latent_q_norm,   // [q_rank]
  router,          // [experts.count, d_model]
  router_choice,   // [experts.count]: the bias for the choice
  shared_gate,     // [experts.shared_d_ff, d_model]
  shared_up,       // [experts.shared_d_ff, d_model]
  shared_down,     // [d_model, experts.shared_d_ff]
  shared_weight,   // [d_model]: experts.shared_weighed
  router_bias,     // [experts.count]: of its logits
  expert_gate_bias,  // [experts.count, experts.d_ff]
  expert_up_bias,    // [experts.count, experts.d_ff]
  expert_down_bias,  // [experts.count, d_model]
  router_norm,       // [d_model]; like the next four where experts.beside_dense
  expert_scale,      // [experts.count]
  expert_norm,       // [d_model]: of what experts read
  expert_post_norm,  // [d_model]: of their result
  dense_post_norm,   // [d_model]: of the dense feed-forward's result
  latent_in,         // [experts.latent, d_model]: what experts read
  latent_out,        // [d_model, experts.latent]: of their result
  input_gate,        // [input_dim, d_model]
  input_out,         // [d_model, input_dim]
  input_post_norm,   // [d_model]
  layer_scale,       // [1]
  laurel_in,         // [laurel_rank, d_model]; like the next two where there is such a rank
  laurel_out,        // [d_model, laurel_rank]
  laurel_norm,       // [d_model]
  stream_router,     // [n_streams, d_model]; like the next four with several streams
  stream_norm,       // [d_model]: of what the router reads
  stream_predict,    // [n_streams * n_streams, n_streams]
  stream_correct,    // [n_streams, n_streams]
  stream_scale,      // [d_model]: of what the layer's own embedding reads
  // Of the model, as the first three are.
  input_embedding,  // [n_vocab, n_layers * input_dim]: of all layers, in order
  input_context,    // [n_layers * input_dim, d_model]
  input_norm,       // [input_dim]
  // Each stream but the first has one in the whole model.
  stream_in,   // [d_model, d_model]: from the embedding
  stream_out,  // [d_model, d_model]: after the last layer
  // Of each expert.
  expert_gate,  // [experts.d_ff, expert_dim]
  expert_up,    // [experts.d_ff, expert_dim]
  expert_down,  // [expert_dim, experts.d_ff]
};
inline constexpr size_t kTensorRoles = static_cast<size_t>(TensorRole::expert_down) + 1;

// Whether the model has one, and not each layer.
inline bool is_of_model(TensorRole role) {
  return role < TensorRole::attn_norm ||
         (role >= TensorRole::input_embedding && role <= TensorRole::stream_out);
}
// Whether every stream but the first has one of its own.
inline bool is_of_streams(TensorRole role) {
  return role == TensorRole::stream_in || role == TensorRole::stream_out;
}
// Whether every expert of a layer has one of its own.
inline bool is_of_experts(TensorRole role) { return role >= TensorRole::expert_gate; }

// Immutable after open; safe for concurrent use.
class ModelSource {
 public:
  virtual ~ModelSource() = default;
  virtual const ModelConfig& config() const = 0;
  virtual const Tokenizer& tokenizer() const = 0;
  // The model's chat template, Jinja source; "" where it has none. Without a NUL.
  virtual const std::string& chat_template() const = 0;
  // Every role that config() calls for (has_tensor()) is there in every layer, with its shape;
  // others must not be asked for.
  virtual const TensorView& tensor(TensorRole role, uint32_t layer) const = 0;
  // The same of one expert, or of stream `expert` + 1, for the roles that are is_of_experts() or
  // is_of_streams().
  virtual const TensorView& expert_tensor(TensorRole role, uint32_t layer,
                                          uint32_t expert) const = 0;
  // Matrices that a pooled vector goes through, one after the other, from and to d_model elements
  // (sentence-transformers' Dense); most models have none.
  virtual std::span<const TensorView> dense() const { return {}; }
  virtual uint64_t n_parameters() const = 0;
  // SHA-256 over hyperparameters, vocabulary and every weight byte. Reads the whole file: `watch`
  // reports bytes. `parallel` runs task(i) for i in [0, n) on any threads; may be empty.
  using ParallelRun = std::function<void(size_t n, const std::function<void(size_t)>& task)>;
  virtual Result<Sha256> fingerprint(const ParallelRun& parallel, const Watch& watch) const = 0;
  // open_lora_adapter() for this model.
  virtual Result<LoraAdapter> open_lora(const std::string& path) const = 0;
};

// Opens a model file by its content (the magic, not the name), or a Hugging Face directory.
Result<std::unique_ptr<ModelSource>> open_model_source(const std::string& path);

}  // namespace blend
