// Distance of fresh rows from stored ones (CacheBlend 4.2), and the drift maps' inputs. CPU
// reference: kernels/cpu/deviation.cpp, row_distance_ref(), and drift.cpp, difference_ref().
//
// A block a row; the sums have one order, so that the same row has the same deviation on every run.
#include <cfloat>

#include "cuda/device.cuh"
#include "cuda/selection.h"

namespace blend::kernels::cuda {
namespace {

constexpr unsigned kThreads = 256;

__device__ inline float sized(float x, bool squares) { return squares ? x * x : fabsf(x); }

template <DType kType>
__global__ void __launch_bounds__(kThreads)
    deviation_kernel(const float* kv, size_t kv_dim, StoredRows rows, DeviationTerms terms,
                     float* out) {
  __shared__ float parts[32];
  const size_t row = blockIdx.x;
  const float* const fresh = kv + (rows.first + row) * 2 * kv_dim;
  float distance = 0, size = 0;
  for (size_t i = threadIdx.x; i < kv_dim; i += kThreads) {
    if (terms.with_k) {
      const float stored = load<kType>(rows.k, row * kv_dim + i);
      distance += sized(fresh[i] - stored, terms.squares);
      size += sized(stored, terms.squares);
    }
    if (terms.with_v) {
      const float stored = load<kType>(rows.v, row * kv_dim + i);
      distance += sized(fresh[kv_dim + i] - stored, terms.squares);
      size += sized(stored, terms.squares);
    }
  }
  distance = block_sum(distance, parts);
  size = block_sum(size, parts);
  if (threadIdx.x != 0) return;
  // Relative to a stored row of zeros, deviation is unbounded, unless the fresh one is zero too.
  if (terms.relative) distance /= size > FLT_MIN ? size : FLT_MIN;
  out[rows.first + row] = distance;
}

template <DType kType>
__global__ void __launch_bounds__(kThreads)
    drift_inputs_kernel(const float* kv, size_t kv_dim, StoredRows rows, bool with_fresh,
                        bool with_one, float* out) {
  const size_t row = blockIdx.x, both = 2 * kv_dim;
  const size_t n_in = both * (with_fresh ? 2 : 1) + (with_one ? 1 : 0);
  const float* const fresh = kv + (rows.first + row) * both;
  float* const at = out + (rows.first + row) * n_in;
  for (size_t i = threadIdx.x; i < both; i += kThreads) {
    const float stored = i < kv_dim ? load<kType>(rows.k, row * kv_dim + i)
                                    : load<kType>(rows.v, row * kv_dim + (i - kv_dim));
    at[i] = fresh[i] - stored;
    if (with_fresh) at[both + i] = fresh[i];
  }
  if (with_one && threadIdx.x == 0) at[n_in - 1] = 1.0f;
}

template <DType kType>
__global__ void __launch_bounds__(kThreads)
    stored_inputs_kernel(size_t kv_dim, StoredRows rows, const float* features, size_t n_features,
                         size_t n_scales, float* out) {
  const size_t row = blockIdx.x, both = 2 * kv_dim;
  const float* const of_row = features + (rows.first + row) * n_features;
  float* const at = out + (rows.first + row) * (both * n_scales + n_features);
  for (size_t i = threadIdx.x; i < both; i += kThreads) {
    const float stored = i < kv_dim ? load<kType>(rows.k, row * kv_dim + i)
                                    : load<kType>(rows.v, row * kv_dim + (i - kv_dim));
    for (size_t s = 0; s < n_scales; ++s) at[s * both + i] = of_row[s] * stored;
  }
  for (size_t i = threadIdx.x; i < n_features; i += kThreads) at[both * n_scales + i] = of_row[i];
}

// A block a row's K or V.
__global__ void __launch_bounds__(kThreads)
    drift_sums_kernel(const float* predicted, const float* drift, size_t kv_dim, DriftSums* out) {
  __shared__ float parts[32];
  const size_t first = static_cast<size_t>(blockIdx.x) * kv_dim;
  float both = 0, own = 0;
  for (size_t i = threadIdx.x; i < kv_dim; i += kThreads) {
    const float y = predicted[first + i];
    both += y * drift[first + i];
    own += y * y;
  }
  both = block_sum(both, parts);
  own = block_sum(own, parts);
  if (threadIdx.x == 0) out[blockIdx.x] = {both, own};
}

__global__ void __launch_bounds__(kThreads)
    scale_kv_kernel(float* kv, size_t kv_dim, float k, float v) {
  const float factor = blockIdx.x % 2 == 0 ? k : v;
  float* const at = kv + static_cast<size_t>(blockIdx.x) * kv_dim;
  for (size_t i = threadIdx.x; i < kv_dim; i += kThreads) at[i] *= factor;
}

}  // namespace

void drift_sums(const float* predicted, const float* drift, size_t kv_dim, size_t rows,
                DriftSums* out, cudaStream_t stream) {
  if (rows == 0) return;
  const auto kernel = &drift_sums_kernel;
  BLEND_LAUNCH(kernel, static_cast<unsigned>(2 * rows), kThreads, 0, stream, predicted, drift,
               kv_dim, out);
}

void scale_kv(float* kv, size_t kv_dim, size_t rows, float k, float v, cudaStream_t stream) {
  if (rows == 0) return;
  const auto kernel = &scale_kv_kernel;
  BLEND_LAUNCH(kernel, static_cast<unsigned>(2 * rows), kThreads, 0, stream, kv, kv_dim, k, v);
}

void deviation(const float* kv, size_t kv_dim, const StoredRows& rows, const DeviationTerms& terms,
               float* out, cudaStream_t stream) {
  if (rows.n == 0) return;
  const auto kernel = rows.type == DType::f32   ? &deviation_kernel<DType::f32>
                      : rows.type == DType::f16 ? &deviation_kernel<DType::f16>
                                                : &deviation_kernel<DType::bf16>;
  BLEND_LAUNCH(kernel, static_cast<unsigned>(rows.n), kThreads, 0, stream, kv, kv_dim, rows, terms,
               out);
}

void drift_inputs(const float* kv, size_t kv_dim, const StoredRows& rows, bool with_fresh,
                  bool with_one, float* out, cudaStream_t stream) {
  if (rows.n == 0) return;
  const auto kernel = rows.type == DType::f32   ? &drift_inputs_kernel<DType::f32>
                      : rows.type == DType::f16 ? &drift_inputs_kernel<DType::f16>
                                                : &drift_inputs_kernel<DType::bf16>;
  BLEND_LAUNCH(kernel, static_cast<unsigned>(rows.n), kThreads, 0, stream, kv, kv_dim, rows,
               with_fresh, with_one, out);
}

void stored_inputs(size_t kv_dim, const StoredRows& rows, const float* features, size_t n_features,
                   size_t n_scales, float* out, cudaStream_t stream) {
  if (rows.n == 0) return;
  const auto kernel = rows.type == DType::f32   ? &stored_inputs_kernel<DType::f32>
                      : rows.type == DType::f16 ? &stored_inputs_kernel<DType::f16>
                                                : &stored_inputs_kernel<DType::bf16>;
  BLEND_LAUNCH(kernel, static_cast<unsigned>(rows.n), kThreads, 0, stream, kv_dim, rows, features,
               n_features, n_scales, out);
}

}  // namespace blend::kernels::cuda
