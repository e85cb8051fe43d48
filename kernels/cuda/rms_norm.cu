// RMSNorm. CPU reference: kernels/cpu/rms_norm.cpp, rms_norm_ref().
//
// A block a row: the row is read twice, the second time from the first-level cache. Heads are
// short: a warp each.
#include "cuda/device.cuh"
#include "cuda/rows.h"

namespace blend::kernels::cuda {
namespace {

constexpr unsigned kThreads = 256;

template <DType kIn, DType kOut>
__global__ void __launch_bounds__(kThreads)
    rms_norm_kernel(const void* x, const float* weight, float eps, size_t cols, void* out) {
  __shared__ float parts[32];
  const size_t first = blockIdx.x * cols;
  float squares = 0;
  if (cols % 4 == 0) {
    for (size_t i = threadIdx.x; i < cols / 4; i += kThreads) {
      const float4 v = load4<kIn>(x, first / 4 + i);
      squares += v.x * v.x + v.y * v.y + (v.z * v.z + v.w * v.w);
    }
  } else {
    for (size_t i = threadIdx.x; i < cols; i += kThreads) {
      const float v = load<kIn>(x, first + i);
      squares += v * v;
    }
  }
  const float scale = rsqrtf(block_sum(squares, parts) / static_cast<float>(cols) + eps);
  if (cols % 4 == 0) {
    for (size_t i = threadIdx.x; i < cols / 4; i += kThreads) {
      const float4 v = load4<kIn>(x, first / 4 + i), w = load4<DType::f32>(weight, i);
      store4<kOut>(out, first / 4 + i,
                   {v.x * scale * w.x, v.y * scale * w.y, v.z * scale * w.z, v.w * scale * w.w});
    }
  } else {
    for (size_t i = threadIdx.x; i < cols; i += kThreads) {
      store<kOut>(out, first + i, load<kIn>(x, first + i) * scale * weight[i]);
    }
  }
}

template <DType kIn>
void launch(const Rows& x, const float* weight, float eps, const Rows& out, cudaStream_t stream) {
  const auto kernel = out.type == DType::f32 ? &rms_norm_kernel<kIn, DType::f32>
                                             : &rms_norm_kernel<kIn, DType::bf16>;
  const auto grid = static_cast<unsigned>(x.n);
  const void* const from = x.data;
  void* const to = out.data;
  const size_t cols = x.cols;
  BLEND_LAUNCH(kernel, grid, kThreads, 0, stream, from, weight, eps, cols, to);
}

// A warp a head, in place.
template <DType kType>
__global__ void __launch_bounds__(kThreads)
    norm_heads_kernel(void* x, size_t cols, size_t n, uint32_t n_heads, uint32_t head_dim,
                      const float* weight, float eps) {
  const size_t i = blockIdx.x * size_t{kThreads / 32} + threadIdx.x / 32;
  if (i >= n) return;
  const size_t first = i / n_heads * cols + i % n_heads * head_dim;
  const uint32_t lane = threadIdx.x % 32;
  float squares = 0;
  for (uint32_t e = lane; e < head_dim; e += 32) {
    const float v = load<kType>(x, first + e);
    squares += v * v;
  }
  const float scale = rsqrtf(warp_sum(squares) / static_cast<float>(head_dim) + eps);
  for (uint32_t e = lane; e < head_dim; e += 32) {
    store<kType>(x, first + e, load<kType>(x, first + e) * scale * weight[e]);
  }
}

}  // namespace

void norm_heads(const Rows& x, uint32_t n_heads, uint32_t head_dim, const float* weight, float eps,
                cudaStream_t stream) {
  const size_t n = x.n * n_heads, cols = x.cols;
  if (n == 0) return;
  const auto kernel =
      x.type == DType::f32 ? &norm_heads_kernel<DType::f32> : &norm_heads_kernel<DType::bf16>;
  const auto grid = static_cast<unsigned>((n + kThreads / 32 - 1) / (kThreads / 32));
  void* const data = x.data;
  BLEND_LAUNCH(kernel, grid, kThreads, 0, stream, data, cols, n, n_heads, head_dim, weight, eps);
}

void rms_norm(const Rows& x, const float* weight, float eps, const Rows& out, cudaStream_t stream) {
  if (x.n == 0) return;
  if (x.type == DType::f32) {
    launch<DType::f32>(x, weight, eps, out, stream);
  } else {
    launch<DType::bf16>(x, weight, eps, out, stream);
  }
}

}  // namespace blend::kernels::cuda
