// RMSNorm. CPU reference: kernels/cpu/rms_norm.cpp, rms_norm_ref().
//
// A block a row: the row is read twice, the second time from the first-level cache.
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

}  // namespace

void rms_norm(const Rows& x, const float* weight, float eps, const Rows& out, cudaStream_t stream) {
  if (x.n == 0) return;
  if (x.type == DType::f32) {
    launch<DType::f32>(x, weight, eps, out, stream);
  } else {
    launch<DType::bf16>(x, weight, eps, out, stream);
  }
}

}  // namespace blend::kernels::cuda
