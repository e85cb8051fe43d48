// ModelDescription: the facts of a model that stored chunks and prompts need: shapes, RoPE,
// vocabulary, fingerprint. No weights, no tokenizer.
//
// A model that libblend runs (Model) is one of these with weights. A host that runs the model
// itself gives the description alone (blend_model_create_from_description) and uses the step API:
// what needs weights takes a Model, so that a described model cannot reach it.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "backend/backend.h"
#include "base/hash.h"
#include "base/threads/guarded.h"
#include "engine/ropes.h"
#include "engine/runtime.h"
#include "model/config.h"

namespace blend {

class Model;

// Immutable but for the RoPE tables, which grow under a lock; safe for concurrent use.
class ModelDescription {
 public:
  // A model that the host runs. INVALID_ARGUMENT names the member that makes no sense. Without
  // a fingerprint one is made from everything in `config`, its name included.
  static Result<std::shared_ptr<const ModelDescription>> create(std::shared_ptr<Runtime> runtime,
                                                                ModelConfig config,
                                                                const Sha256* fingerprint);
  virtual ~ModelDescription() = default;
  ModelDescription(const ModelDescription&) = delete;
  ModelDescription& operator=(const ModelDescription&) = delete;

  // The same model with its weights; null when it is only described.
  virtual const Model* loaded() const { return nullptr; }

  Runtime& runtime() const { return *runtime_; }
  Backend& backend() const { return runtime_->backend(); }
  const ModelConfig& config() const { return config_; }
  const Sha256& fingerprint() const { return fingerprint_; }
  uint32_t context_length() const { return context_length_; }

  // Tables that cover at least n_positions. They are shared and grow by doubling.
  Result<std::shared_ptr<const Ropes>> ropes(uint32_t n_positions) const;

  // CONTEXT_LENGTH when `n` tokens cannot fit in any prompt. Called before the tokens are read: a
  // length that is nonsense must not be followed. `what` is their owner.
  Status check_length(size_t n, const std::string& what) const;
  // INVALID_ARGUMENT names the first token outside the vocabulary.
  Status check_tokens(std::span<const int32_t> tokens, const std::string& what) const;

 protected:
  explicit ModelDescription(std::shared_ptr<Runtime> runtime) : runtime_(std::move(runtime)) {}

  std::shared_ptr<Runtime> runtime_;
  ModelConfig config_;
  Sha256 fingerprint_{};
  uint32_t context_length_ = 0;

 private:
  mutable Mutex rope_mutex_;
  mutable std::shared_ptr<const Ropes> ropes_ BLEND_GUARDED_BY(rope_mutex_);
};

}  // namespace blend
