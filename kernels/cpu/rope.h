// Rotary position embedding (Su et al. 2021) of one row.
#pragma once

#include <cstddef>

namespace blend::kernels {

// How the elements of a head pair up.
enum class RopePairs { adjacent, halves };

struct RopeRow {
  size_t n_heads = 0;
  size_t head_dim = 0;
  size_t rotary_dim = 0;  // even, <= head_dim; the rest of a head is unchanged
  RopePairs pairs = RopePairs::adjacent;
  const float* cos = nullptr;  // [rotary_dim / 2] at the row's position
  const float* sin = nullptr;  // [rotary_dim / 2]
};

// x: [n_heads * head_dim], rotated in place.
void rope(const RopeRow& row, float* x);
void rope_ref(const RopeRow& row, float* x);

}  // namespace blend::kernels
