// Work: the floating-point operations of one fuse, counted from what it computed.
//
// Counts matrix products and attention, 2 for a multiply-add, as for full prefill. Norms,
// rotations, deviations and the scatter of stored rows are not counted; they are less than a
// hundredth. So two ways of fusing can be compared at equal work on any machine.
#pragma once

#include <span>

#include "backend/backend.h"

namespace blend {

// Not thread-safe. The configuration must outlive it.
class Work {
 public:
  explicit Work(const ModelConfig& config) : config_(&config) {}

  // K and V of n_rows.
  void add_kv(uint32_t layer, size_t n_rows);
  // Attention and feed-forward of `rows` at `layer`; each row attends to all earlier rows in the
  // layer's window.
  void add_layer(uint32_t layer, std::span<const uint32_t> rows);
  // The attention scores of `rows` alone: their Q and the scores.
  void add_attention_mass(uint32_t layer, std::span<const uint32_t> rows);
  // The same for rows whose Q is computed anyway.
  void add_scores(uint32_t layer, std::span<const uint32_t> rows);
  // The drift correction's own count (corrector.h).
  void add_correction(double flops) { flops_ += flops; }
  // Logits of one row.
  void add_logits();

  double flops() const { return flops_; }

 private:
  double pairs(uint32_t layer, std::span<const uint32_t> rows) const;

  const ModelConfig* config_;
  double flops_ = 0;
};

}  // namespace blend
