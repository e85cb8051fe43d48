// Distance of a fresh row from a stored one (CacheBlend 4.2).
#pragma once

#include <cstddef>

#include "base/half.h"

namespace blend::kernels {

// sum over n of (fresh - stored)^2; stored: [n] of dtype, any alignment.
float squared_distance(const float* fresh, const std::byte* stored, DType dtype, size_t n);
float squared_distance_ref(const float* fresh, const std::byte* stored, DType dtype, size_t n);

}  // namespace blend::kernels
