// Sequence: a prompt's KV cache, how far it is filled, and the logits of its last row.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/forward.h"
#include "engine/model.h"

namespace blend {

// Not thread-safe; shares its model's life.
class Sequence {
 public:
  // Empty, with room for `capacity` rows.
  static Result<std::unique_ptr<Sequence>> create(std::shared_ptr<const Model> model,
                                                  uint32_t capacity);

  const Model& model() const { return *model_; }
  KvCache& cache() { return *cache_; }
  const RopeTable& rope() const { return *rope_; }
  uint32_t n_rows() const { return n_rows_; }
  uint32_t capacity() const { return cache_->capacity(); }
  const std::vector<float>& logits() const { return logits_; }  // [n_vocab]; empty before the first

  // Says that slots 0 .. n_rows-1 are filled in every layer and gives the last row's logits.
  void set_filled(uint32_t n_rows, std::vector<float> logits);

  // Appends tokens (checked by the caller) by ordinary prefill. On failure the sequence is as
  // before: slots past n_rows() may hold anything. CONTEXT_LENGTH when they do not fit.
  Status append(std::span<const int32_t> tokens, const Watch& watch);

 private:
  Sequence() = default;

  std::shared_ptr<const Model> model_;
  std::unique_ptr<KvCache> cache_;
  std::shared_ptr<const RopeTable> rope_;
  std::unique_ptr<Forward> step_;  // scratch of one-token steps, kept between them
  uint32_t n_rows_ = 0;
  std::vector<float> logits_;
};

}  // namespace blend
