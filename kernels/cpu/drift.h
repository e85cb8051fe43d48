// The two ends of the drift correction, and of the shift of chunks: adding drift to stored rows,
// and measuring it.
#pragma once

#include <cstddef>

#include "formats/half.h"

namespace blend::kernels {

// out[i] = stored[i] + drift[i]; stored: [n] of dtype, any alignment.
void decode_add(const std::byte* stored, DType dtype, size_t n, const float* drift, float* out);
// out[i] = fresh[i] - stored[i].
void difference(const float* fresh, const std::byte* stored, DType dtype, size_t n, float* out);

// sum[i] += x[i] * factor.
void add_scaled(const float* x, float factor, size_t n, float* sum);

// The drift correction's prediction, compared with the true drift: sums over [n].
struct DriftSums {
  float both = 0;       // of predicted * drift
  float predicted = 0;  // of predicted * predicted
};
DriftSums drift_sums(const float* predicted, const float* drift, size_t n);

// Scalar references.
void add_scaled_ref(const float* x, float factor, size_t n, float* sum);
DriftSums drift_sums_ref(const float* predicted, const float* drift, size_t n);
void decode_add_ref(const std::byte* stored, DType dtype, size_t n, const float* drift, float* out);
void difference_ref(const float* fresh, const std::byte* stored, DType dtype, size_t n, float* out);

}  // namespace blend::kernels
