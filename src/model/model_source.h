// ModelSource: an opened model file: description, tokenizer and tensors, before any backend has
// packed the weights. Formats (GGUF now, Hugging Face directories later) implement open functions
// that return it; nothing behind this header knows which format it was.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "base/hash.h"
#include "base/status.h"
#include "model/config.h"
#include "model/tokenizer.h"

namespace blend {

// A tensor in mapped memory; checked to lie inside the file. Valid while its ModelSource lives.
struct TensorView {
  std::string name;  // as in the file, for messages
  DType dtype = DType::f32;
  std::vector<int64_t> shape;       // row-major: [rows, cols] for matrices, [n] for vectors
  const std::byte* data = nullptr;  // maybe unaligned to the element

  int64_t elements() const {
    int64_t n = 1;
    for (const int64_t s : shape) n *= s;
    return n;
  }
  size_t bytes() const {
    return static_cast<size_t>(elements()) * static_cast<size_t>(dtype_size(dtype));
  }
};

// What a tensor is for; `layer` is 0 for the first three.
enum class TensorRole : uint8_t {
  embedding,    // [n_vocab, d_model]
  output_norm,  // [d_model]
  output,       // [n_vocab, d_model]; the embedding where they are tied
  attn_norm,    // [d_model]
  attn_q,       // [n_heads*head_dim, d_model]
  attn_k,       // [n_kv_heads*head_dim, d_model]
  attn_v,       // [n_kv_heads*head_dim, d_model]
  attn_out,     // [d_model, n_heads*head_dim]
  ffn_norm,     // [d_model]
  ffn_gate,     // [d_ff, d_model]
  ffn_up,       // [d_ff, d_model]
  ffn_down,     // [d_model, d_ff]
};

// Immutable after open; safe for concurrent use.
class ModelSource {
 public:
  virtual ~ModelSource() = default;
  virtual const ModelConfig& config() const = 0;
  virtual const Tokenizer& tokenizer() const = 0;
  // Never null for a source that opened: every role of every layer was found with its shape.
  virtual const TensorView& tensor(TensorRole role, uint32_t layer) const = 0;
  virtual uint64_t n_parameters() const = 0;
  // SHA-256 over hyperparameters, vocabulary and every weight byte. Reads the whole file: `watch`
  // reports bytes. `parallel` runs task(i) for i in [0, n) on any threads; may be empty.
  using ParallelRun = std::function<void(size_t n, const std::function<void(size_t)>& task)>;
  virtual Result<Sha256> fingerprint(const ParallelRun& parallel, const Watch& watch) const = 0;
};

// Opens a model file by its content (the magic, not the name).
Result<std::unique_ptr<ModelSource>> open_model_source(const std::string& path);

}  // namespace blend
