// Work: the floating-point operations of one fuse, counted from what it computed.
//
// Products and sums of the matrices and of attention, 2 a multiply-add, as they are counted for
// full prefill too; norms, rotations, deviations and the placing of stored rows are not, which are
// less than a hundredth. So two ways of fusing can be compared at equal work, whatever machine runs
// them.
#pragma once

#include <span>

#include "backend/backend.h"

namespace blend {

// Not thread-safe. The configuration must outlive it.
class Work {
 public:
  explicit Work(const ModelConfig& config) : config_(&config) {}

  // K and V of so many rows.
  void add_kv(size_t n_rows);
  // Attention and feed-forward of `rows` at `layer`; each attends to all rows before it that the
  // layer lets it see.
  void add_layer(uint32_t layer, std::span<const uint32_t> rows);
  // What `rows` attend to, and nothing else: their Q and scores.
  void add_attention_mass(uint32_t layer, std::span<const uint32_t> rows);
  // The same of rows whose Q is computed anyway.
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
