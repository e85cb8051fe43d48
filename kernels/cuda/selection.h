// Kernels by which the fusion selects: deviation, the drift maps' inputs, the k largest.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "formats/half.h"

namespace blend::kernels::cuda {

// Consecutive stored rows on the device; k, v: [n, kv_dim] of type, K before RoPE. Row i belongs to
// row first + i of the fresh tensor.
struct StoredRows {
  const void* k = nullptr;
  const void* v = nullptr;
  DType type = DType::f16;
  size_t n = 0;
  size_t first = 0;
};

struct DeviationTerms {
  bool with_k = false;
  bool with_v = true;
  bool squares = true;    // else magnitudes
  bool relative = false;  // divided by the same sum over the stored row alone
};

// out[first + i] = deviation of row first + i; kv: f32 [.., 2 * kv_dim] = K | V.
void deviation(const float* kv, size_t kv_dim, const StoredRows& rows, const DeviationTerms& terms,
               float* out, cudaStream_t stream);

// out[first + i] = [fresh - stored: 2 kv_dim][fresh: 2 kv_dim if with_fresh][1 if with_one].
void drift_inputs(const float* kv, size_t kv_dim, const StoredRows& rows, bool with_fresh,
                  bool with_one, float* out, cudaStream_t stream);

// out[first + i] = [K | V of the stored row times each of the first n_scales features of row
// first + i][its n_features features]; features: [.., n_features] on the device.
void stored_inputs(size_t kv_dim, const StoredRows& rows, const float* features, size_t n_features,
                   size_t n_scales, float* out, cudaStream_t stream);

// The drift correction's prediction, compared with the drift (kernels/cpu/drift.h, DriftSums).
struct DriftSums {
  float both;
  float predicted;
};
// out: [2 * rows], of K and V of each row in turn; predicted, drift: [rows, 2 * kv_dim].
void drift_sums(const float* predicted, const float* drift, size_t kv_dim, size_t rows,
                DriftSums* out, cudaStream_t stream);
// kv: [rows, 2 * kv_dim]; K times k, V times v.
void scale_kv(float* kv, size_t kv_dim, size_t rows, float k, float v, cudaStream_t stream);

// out: the indices of the k largest of scores [n], ascending; ties go to the lower index, NaN
// counts as largest. 0 < k <= n < 2^31. The same result on every run.
void top_k(const float* scores, uint32_t n, uint32_t k, uint32_t* out, cudaStream_t stream);

}  // namespace blend::kernels::cuda
