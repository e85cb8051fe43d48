// Model: a model source whose weights a backend has packed.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/cancel.h"
#include "base/hash.h"
#include "engine/runtime.h"
#include "model/model_source.h"

namespace blend {

struct LayerWeights {
  std::unique_ptr<Weight> attn_norm;  // [d_model]
  std::unique_ptr<Weight> q;          // [n_heads * head_dim, d_model]
  std::unique_ptr<Weight> kv;         // [2 * kv_dim, d_model]: K over V, one GEMM
  std::unique_ptr<Weight> attn_out;   // [d_model, n_heads * head_dim]
  std::unique_ptr<Weight> ffn_norm;   // [d_model]
  std::unique_ptr<Weight> gate_up;    // [2 * d_ff, d_model]: gate over up, one GEMM
  std::unique_ptr<Weight> ffn_down;   // [d_model, d_ff]
};

// Immutable after load but for the RoPE table, which grows under a lock; safe for concurrent use.
class Model {
 public:
  // max_context 0: what the model was trained for; more than that is refused.
  static Result<std::shared_ptr<const Model>> load(std::shared_ptr<Runtime> runtime,
                                                   const std::string& path, uint32_t max_context,
                                                   const Watch& watch);

  Runtime& runtime() const { return *runtime_; }
  Backend& backend() const { return runtime_->backend(); }
  const ModelConfig& config() const { return source_->config(); }
  const Tokenizer& tokenizer() const { return source_->tokenizer(); }
  uint64_t n_parameters() const { return source_->n_parameters(); }
  const Sha256& fingerprint() const { return fingerprint_; }
  uint32_t context_length() const { return context_length_; }
  uint64_t weight_bytes() const { return weight_bytes_; }

  const Weight& embedding() const { return *embedding_; }      // table [n_vocab, d_model]
  const Weight& output_norm() const { return *output_norm_; }  // [d_model]
  const Weight& output() const { return *output_; }            // [n_vocab, d_model]
  const LayerWeights& layer(uint32_t i) const { return layers_[i]; }

  // A table that covers at least n_positions. Tables are shared and grow by doubling.
  Result<std::shared_ptr<const RopeTable>> rope(uint32_t n_positions) const;

  // CONTEXT_LENGTH when `n` tokens cannot fit in any prompt. Asked before the tokens are read: a
  // length that is nonsense must not be followed. `what` is their owner.
  Status check_length(size_t n, const std::string& what) const;
  // INVALID_ARGUMENT names the first token outside the vocabulary.
  Status check_tokens(std::span<const int32_t> tokens, const std::string& what) const;

 private:
  Model() = default;
  Status pack(const Watch& watch);

  std::shared_ptr<Runtime> runtime_;
  std::unique_ptr<ModelSource> source_;
  Sha256 fingerprint_{};
  uint32_t context_length_ = 0;
  uint64_t weight_bytes_ = 0;
  std::unique_ptr<Weight> embedding_;
  std::unique_ptr<Weight> output_norm_;
  std::unique_ptr<Weight> output_;
  std::vector<LayerWeights> layers_;

  mutable std::mutex rope_mutex_;
  mutable std::shared_ptr<const RopeTable> rope_;
};

}  // namespace blend
