// Sampler: the next token from logits: greedy, or temperature with top-k, top-p and min-p.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"

namespace blend {

struct SamplerOptions {
  float temperature = 0.0f;  // 0: greedy
  float top_p = 1.0f;        // 1: off
  uint32_t top_k = 0;        // 0: off
  uint64_t seed = 0;
  float min_p = 0.0f;  // of the likeliest token's probability; 0: off
};

// Deterministic: the same seed and logits give the same tokens on every platform. Not thread-safe.
class Sampler {
 public:
  static Result<Sampler> create(const SamplerOptions& options);

  // Greedy ties go to the lowest id. logits: [n_vocab], finite, or -infinity for a token that is
  // never taken; at least one is finite.
  int32_t sample(std::span<const float> logits);

 private:
  explicit Sampler(const SamplerOptions& options) : options_(options), state_(options.seed) {}
  double uniform();  // [0, 1)
  void sort_best(size_t n);

  SamplerOptions options_;
  uint64_t state_;
  std::vector<std::pair<float, int32_t>> candidates_;  // kept between calls
  size_t n_sorted_ = 0;                                // of them, the best
};

}  // namespace blend
