// LoraAdapter: what fine-tuning added to a model's matrices, as products of two small ones
// (LoRA: Hu et al., arXiv:2106.09685): y = W x becomes y = W x + factor * up (down x).
//
// GGUF files as llama.cpp has them and PEFT directories are read; both give the same adapter. The
// files are never trusted, and nothing is left out silently: an adapter that asks for more than
// this is refused by the name of what it asks for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "model/config.h"
#include "model/model_source.h"

namespace blend {

// In which order a model's file has the rows of Q and K. Converters to GGUF bring the elements that
// RoPE turns together side by side in some families; an adapter's rows follow those of its model.
enum class HeadRows : uint8_t { hugging_face, gguf };

// What is added to one matrix of the model.
struct LoraMatrix {
  TensorRole role = TensorRole::attn_q;
  uint32_t layer = 0;
  size_t rank = 0;
  std::vector<float> down;  // [rank, in]; of the embedding [n_vocab, rank], a row for each token
  std::vector<float> up;    // [out, rank], rows as the model's file has them; out is then d_model
  double factor = 1;        // of the product: alpha / rank
};

// Immutable once read; safe for concurrent use.
struct LoraAdapter {
  std::vector<LoraMatrix> matrices;  // by layer and role
  // SHA-256 over all of the above: what an adapter computes, not how its file says it.
  Sha256 digest{};

  size_t largest_rank() const;
};

// Opens an adapter for a model of this config, whose file has its rows as `rows` says. NOT_FOUND,
// IO, FORMAT (damaged or contradictory), UNSUPPORTED (names what it asks for), MISMATCH (it belongs
// to another model), NUMERIC (a NaN or infinity).
Result<LoraAdapter> open_lora_adapter(const std::string& path, const ModelConfig& config,
                                      HeadRows rows);

// Its formats, from memory.
Result<LoraAdapter> read_gguf_lora(std::span<const std::byte> file, const ModelConfig& config,
                                   HeadRows rows);
Result<LoraAdapter> read_peft_lora(std::string_view config_json,
                                   std::span<const std::byte> safetensors,
                                   const ModelConfig& config, HeadRows rows);

}  // namespace blend
