// Deterministic selection of the k largest scores.
#pragma once

#include <cstddef>
#include <cstdint>

namespace blend::kernels {

// Indices of the k largest of scores: [n], ascending; ties go to the lower index, NaN counts as
// largest, -0 equals +0. k <= n, n < 2^32; keys: scratch, [n]. Not SIMD: n is the rows of a prompt.
void top_k(const float* scores, size_t n, size_t k, uint64_t* keys, uint32_t* out);
void top_k_ref(const float* scores, size_t n, size_t k, uint32_t* out);

}  // namespace blend::kernels
