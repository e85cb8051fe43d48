// RoPE of query rows, and its table. CPU reference: kernels/cpu/rope.cpp, rope_ref(), and
// src/backend/cpu/rope_table.h.
#include "cuda/device.cuh"
#include "cuda/rope.cuh"

namespace blend::kernels::cuda {
namespace {

constexpr unsigned kThreads = 256;

// One angle a thread, in double: f32 would be off by whole turns' rounding at 100 K positions.
__global__ void __launch_bounds__(kThreads)
    rope_table_kernel(const double* frequency, uint32_t half, size_t n, RopeFactor factor,
                      float* table) {
  const size_t i = blockIdx.x * size_t{kThreads} + threadIdx.x;
  if (i >= n) return;
  const size_t pos = i / half, pair = i % half;
  const double angle = static_cast<double>(pos) * frequency[pair];
  float by = factor.factor;
  if (factor.growth != 0) {
    by *= static_cast<float>(1 + factor.growth * log1p(static_cast<double>(pos / factor.rows)));
  }
  table[pos * 2 * half + pair] = by * static_cast<float>(cos(angle));
  table[pos * 2 * half + half + pair] = by * static_cast<float>(sin(angle));
}

// A block a row, a pair a thread: both elements are read before either is written.
template <DType kType>
__global__ void __launch_bounds__(kThreads)
    rope_rows_kernel(RopeView rope, void* x, size_t cols, uint32_t head_dim, const uint32_t* pos) {
  const float* const at = rope.table + size_t{pos[blockIdx.x]} * 2 * rope.half;
  const size_t first = blockIdx.x * cols, n_pairs = cols / head_dim * rope.half;
  for (size_t i = threadIdx.x; i < n_pairs; i += kThreads) {
    const size_t head = first + i / rope.half * head_dim, pair = i % rope.half;
    const size_t a = head + (rope.halves ? pair : 2 * pair);
    const size_t b = head + (rope.halves ? pair + rope.half : 2 * pair + 1);
    const float va = load<kType>(x, a), vb = load<kType>(x, b);
    const float c = at[pair], s = at[rope.half + pair];
    store<kType>(x, a, va * c - vb * s);
    store<kType>(x, b, va * s + vb * c);
  }
}

}  // namespace

void make_rope_table(const double* frequency, uint32_t half, uint32_t n_positions,
                     const RopeFactor& factor, float* table, cudaStream_t stream) {
  const size_t n = size_t{n_positions} * half;
  if (n == 0) return;
  const auto kernel = &rope_table_kernel;
  const auto grid = static_cast<unsigned>((n + kThreads - 1) / kThreads);
  const RopeFactor by = factor;
  BLEND_LAUNCH(kernel, grid, kThreads, 0, stream, frequency, half, n, by, table);
}

void rope_rows(const RopeView& rope, const Rows& x, uint32_t head_dim, const uint32_t* pos,
               cudaStream_t stream) {
  if (x.n == 0 || rope.half == 0) return;
  const auto kernel =
      x.type == DType::f32 ? &rope_rows_kernel<DType::f32> : &rope_rows_kernel<DType::bf16>;
  void* const data = x.data;
  const size_t cols = x.cols;
  BLEND_LAUNCH(kernel, static_cast<unsigned>(x.n), kThreads, 0, stream, rope, data, cols, head_dim,
               pos);
}

}  // namespace blend::kernels::cuda
