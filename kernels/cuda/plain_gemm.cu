// y = x W^T without tensor cores. CPU reference: kernels/cpu/gemm, or three loops.
//
// A block computes 16 x 16 elements of y, a thread one of them, from tiles of 16 columns of x and W
// in shared memory.
#include "cuda/device.cuh"
#include "cuda/plain_gemm.h"

namespace blend::kernels::cuda {
namespace {

constexpr unsigned kTile = 16;

template <DType kType>
__global__ void __launch_bounds__(kTile* kTile)
    plain_gemm_kernel(const uint16_t* x, const uint16_t* w, void* y, size_t rows, size_t in,
                      size_t out, bool accumulate) {
  // One column more: the threads of a warp read a column of W's tile, each from a bank of its own.
  __shared__ float xs[kTile][kTile + 1], ws[kTile][kTile + 1];
  const unsigned col = threadIdx.x % kTile, row = threadIdx.x / kTile;
  const size_t first_row = blockIdx.y * size_t{kTile}, first_out = blockIdx.x * size_t{kTile};
  float sum = 0.0f;
  for (size_t first = 0; first < in; first += kTile) {
    const bool inside = first + col < in;
    xs[row][col] = inside && first_row + row < rows
                       ? from_bf16(x[(first_row + row) * in + first + col])
                       : 0.0f;
    ws[row][col] =
        inside && first_out + row < out ? from_bf16(w[(first_out + row) * in + first + col]) : 0.0f;
    __syncthreads();
    for (unsigned i = 0; i < kTile; ++i) sum += xs[row][i] * ws[col][i];
    __syncthreads();
  }
  if (first_row + row >= rows || first_out + col >= out) return;
  const size_t at = (first_row + row) * out + first_out + col;
  store<kType>(y, at, accumulate ? load<kType>(y, at) + sum : sum);
}

}  // namespace

void plain_gemm(const uint16_t* x, const uint16_t* w, void* y, size_t rows, size_t in, size_t out,
                bool y_is_bf16, bool accumulate, cudaStream_t stream) {
  // Rows beyond a grid's limit in y are another launch's.
  constexpr size_t kRowsAtOnce = size_t{65535} * kTile;
  const auto blocks = [](size_t n) { return static_cast<unsigned>((n + kTile - 1) / kTile); };
  for (size_t first = 0; first < rows; first += kRowsAtOnce) {
    const size_t n = rows - first < kRowsAtOnce ? rows - first : kRowsAtOnce;
    const dim3 grid(blocks(out), blocks(n));
    auto* const to = static_cast<unsigned char*>(y) + first * out * (y_is_bf16 ? 2 : 4);
    if (y_is_bf16) {
      BLEND_LAUNCH(plain_gemm_kernel<DType::bf16>, grid, kTile * kTile, 0, stream, x + first * in,
                   w, to, n, in, out, accumulate);
    } else {
      BLEND_LAUNCH(plain_gemm_kernel<DType::f32>, grid, kTile * kTile, 0, stream, x + first * in, w,
                   to, n, in, out, accumulate);
    }
  }
}

}  // namespace blend::kernels::cuda
