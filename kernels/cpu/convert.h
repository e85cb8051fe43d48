// Storage types to f32 and back; finiteness.
#pragma once

#include <cstddef>

#include "formats/half.h"

namespace blend::kernels {

// out[i] = src[i]; src: [n] of dtype, any alignment. Thread-safe, as all kernels are.
void decode(const std::byte* src, DType dtype, size_t n, float* out);

// Rounds to nearest even. False if a result is not finite in dtype (an f32 that overflows f16
// counts); everything is written all the same.
[[nodiscard]] bool encode(const float* src, size_t n, DType dtype, std::byte* out);

// Index of the first NaN or infinity of src: [n], or n.
size_t find_not_finite(const float* src, size_t n);

// Scalar references.
void decode_ref(const std::byte* src, DType dtype, size_t n, float* out);
bool encode_ref(const float* src, size_t n, DType dtype, std::byte* out);

}  // namespace blend::kernels
