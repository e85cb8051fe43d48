// Distance of a fresh row from a stored one (CacheBlend 4.2), and a stored row's own size.
#pragma once

#include <cstddef>
#include <cstdint>

#include "formats/half.h"

namespace blend::kernels {

// How differences are summed. The paper's deviation is the sum of squares.
enum class Norm : uint8_t { squares, magnitudes };

// sum over n of (fresh - stored)^2, or of |fresh - stored|; stored: [n] of dtype, any alignment.
float row_distance(const float* fresh, const std::byte* stored, DType dtype, size_t n, Norm norm);
float row_distance_ref(const float* fresh, const std::byte* stored, DType dtype, size_t n,
                       Norm norm);
// The same of the stored row alone: its distance from zero.
float row_size(const std::byte* stored, DType dtype, size_t n, Norm norm);
float row_size_ref(const std::byte* stored, DType dtype, size_t n, Norm norm);

}  // namespace blend::kernels
