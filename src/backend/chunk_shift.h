// What FusionOps::shift_rows() adds to the stored rows of a chunk: how far its recomputed rows
// moved.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "backend/tensor.h"

namespace blend {

// Rows of one chunk in a cache.
struct ShiftedChunk {
  uint32_t first = 0;   // slot
  uint32_t n_rows = 0;  // slots [first, first + n_rows)
  uint32_t begin = 0;   // of its recomputed rows, among those of all chunks
  uint32_t n_moved = 0;
};

// A row takes sum w_i d_i / (sum w_i + kPrior) of the recomputed rows i of its chunk, where d_i is
// what row i moved by and w_i = 1 + exp(-distance / kReach). That is about what a Gaussian process
// expects in whose prior a row's movement has three parts: one of its chunk, one as large of its
// neighbourhood, and one kPrior times as large of its own (as variances).
class ShiftRule {
 public:
  static constexpr float kReach = 4;
  static constexpr float kPrior = 8;
  // Rows at a larger distance have weight 1.
  static constexpr uint32_t kNear = 16;

  ShiftRule() {
    for (uint32_t i = 0; i <= kNear; ++i) near_[i] = std::exp(-static_cast<float>(i) / kReach);
  }
  // w - 1; distance: at most kNear.
  float near(uint32_t distance) const { return near_[distance]; }
  const std::array<float, kNear + 1>& table() const { return near_; }

 private:
  std::array<float, kNear + 1> near_;
};

// The recomputed rows of all chunks, and what each moved by.
struct Moves {
  Tensor kv;                        // [rows, 2 * kv_dim] = K before RoPE | V, fresh - stored
  const uint32_t* slots = nullptr;  // host [rows], ascending
};

}  // namespace blend
