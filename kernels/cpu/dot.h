// Inner products: the GEMM of few rows.
#pragma once

#include <cstddef>

namespace blend::kernels {

// sum of a[i] * b[i]; a, b: [n].
float dot(const float* a, const float* b, size_t n);

// The scalar reference.
float dot_ref(const float* a, const float* b, size_t n);

}  // namespace blend::kernels
