// ModelSource: an opened model file: description, tokenizer and tensors, before any backend has
// packed the weights. Formats (GGUF, Hugging Face directories) implement open functions that return
// it; code above this interface does not know which format it was.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
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

// Role of a tensor; `layer` is 0 for the first three. Norms and the roles after ffn_down exist
// where the config says so; tensor_table.h has the shapes of all.
enum class TensorRole : uint8_t {
  embedding,         // [n_vocab, d_model]
  output_norm,       // [d_model]
  output,            // [n_vocab, d_model]; the embedding where they are tied
  attn_norm,         // [d_model]
  attn_q,            // [n_heads*head_dim, d_model]
  attn_k,            // [n_kv_heads*head_dim, d_model]
  attn_v,            // [n_kv_heads*head_dim, d_model]
  attn_out,          // [d_model, n_heads*head_dim]
  ffn_norm,          // [d_model]
  ffn_gate,          // [d_ff, d_model]
  ffn_up,            // [d_ff, d_model]
  ffn_down,          // [d_model, d_ff]
  attn_q_bias,       // [n_heads*head_dim]
  attn_k_bias,       // [n_kv_heads*head_dim]
  attn_v_bias,       // [n_kv_heads*head_dim]
  attn_out_bias,     // [d_model]
  attn_q_norm,       // [head_dim], or [n_heads*head_dim]: QkNorm
  attn_k_norm,       // [head_dim], or [n_kv_heads*head_dim]
  attn_sinks,        // [n_heads]
  attn_post_norm,    // [d_model]
  ffn_gate_bias,     // [d_ff]
  ffn_up_bias,       // [d_ff]
  ffn_down_bias,     // [d_model]
  ffn_post_norm,     // [d_model]
  conv_b,            // [d_model, d_model]; like the next four of a layer that convolves
  conv_c,            // [d_model, d_model]
  conv_x,            // [d_model, d_model]
  conv_taps,         // [d_model, conv.taps]: the last is that of the row itself
  conv_out,          // [d_model, d_model]
  router,            // [experts.count, d_model]
  router_choice,     // [experts.count]: the bias for the choice
  shared_gate,       // [experts.shared_d_ff, d_model]
  shared_up,         // [experts.shared_d_ff, d_model]
  shared_down,       // [d_model, experts.shared_d_ff]
  router_bias,       // [experts.count]: of its logits
  expert_gate_bias,  // [experts.count, experts.d_ff]
  expert_up_bias,    // [experts.count, experts.d_ff]
  expert_down_bias,  // [experts.count, d_model]
  // Of each expert.
  expert_gate,  // [experts.d_ff, d_model]
  expert_up,    // [experts.d_ff, d_model]
  expert_down,  // [d_model, experts.d_ff]
};
inline constexpr size_t kTensorRoles = static_cast<size_t>(TensorRole::expert_down) + 1;

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
  // The same of one expert, for the roles that are is_of_experts().
  virtual const TensorView& expert_tensor(TensorRole role, uint32_t layer,
                                          uint32_t expert) const = 0;
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
