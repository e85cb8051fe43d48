// The rotation of one element of a head (Su et al. 2021). CPU reference: kernels/cpu/rope.cpp,
// rope_ref().
#pragma once

#include "cuda/device.cuh"
#include "cuda/kv_rows.h"

namespace blend::kernels::cuda {

// Element d of a head after its rotation by position `pos`. value(e): element e before it.
template <typename Value>
__device__ inline float rotated(const RopeView& rope, uint32_t pos, float sin_sign, uint32_t d,
                                const Value& value) {
  if (d >= 2 * rope.half) return value(d);
  const uint32_t pair = rope.halves ? d % rope.half : d / 2;
  const bool second = rope.halves ? d >= rope.half : d % 2 != 0;
  const float* const at = rope.table + size_t{pos} * 2 * rope.half;
  const float cos = at[pair], sin = sin_sign * at[rope.half + pair];
  const uint32_t a = rope.halves ? pair : 2 * pair,
                 b = rope.halves ? pair + rope.half : 2 * pair + 1;
  return second ? value(a) * sin + value(b) * cos : value(a) * cos - value(b) * sin;
}

}  // namespace blend::kernels::cuda
