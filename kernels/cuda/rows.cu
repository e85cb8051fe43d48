// Embedding, gathering, sums and conversion of rows. CPU reference: kernels/cpu/convert.cpp,
// decode_ref() and encode_ref(); the loops of CpuBackend::embed() and gather().
#include "cuda/device.cuh"
#include "cuda/rows.h"

namespace blend::kernels::cuda {
namespace {

constexpr unsigned kThreads = 256;

unsigned blocks_for(size_t n) { return static_cast<unsigned>((n + kThreads - 1) / kThreads); }

template <DType kType>
__global__ void __launch_bounds__(kThreads)
    embed_kernel(const void* table, const int32_t* tokens, size_t cols, float* out) {
  const size_t row = blockIdx.x, from = static_cast<size_t>(tokens[row]) * cols;
  for (size_t i = threadIdx.x; i < cols; i += kThreads) {
    out[row * cols + i] = load<kType>(table, from + i);
  }
}

// T: unsigned of the element's size.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    gather_kernel(const T* src, const uint32_t* rows, size_t cols, T* dst) {
  const size_t to = blockIdx.x * cols, from = rows[blockIdx.x] * cols;
  for (size_t i = threadIdx.x; i < cols; i += kThreads) dst[to + i] = src[from + i];
}

// Copies the bytes after the last whole word: by the first thread.
__global__ void __launch_bounds__(kThreads)
    copy_words_kernel(const uint32_t* from, size_t bytes, uint32_t* to) {
  const size_t i = blockIdx.x * size_t{kThreads} + threadIdx.x, words = bytes / 4;
  if (i < words) to[i] = from[i];
  if (i != 0) return;
  for (size_t at = words * 4; at < bytes; ++at) {
    reinterpret_cast<uint8_t*>(to)[at] = reinterpret_cast<const uint8_t*>(from)[at];
  }
}

__device__ inline void report(float value, unsigned long long index, unsigned long long* bad) {
  if (bad != nullptr && not_finite(value)) atomicMin(bad, index);
}

// A block a row.
template <DType kType>
__global__ void __launch_bounds__(kThreads)
    add_bias_kernel(void* x, size_t cols, const float* bias) {
  const size_t first = blockIdx.x * cols;
  for (size_t i = threadIdx.x; i < cols; i += kThreads) {
    store<kType>(x, first + i, load<kType>(x, first + i) + bias[i]);
  }
}

__global__ void __launch_bounds__(kThreads) add_kernel(float* x, const float* y, size_t n) {
  const size_t i = blockIdx.x * size_t{kThreads} + threadIdx.x;
  if (i < n) x[i] += y[i];
}

__global__ void __launch_bounds__(kThreads) scale_kernel(float* x, float factor, size_t n) {
  const size_t i = blockIdx.x * size_t{kThreads} + threadIdx.x;
  if (i < n) x[i] *= factor;
}

// A block a row: weights have long ones, and an element's index needs no division.
template <DType kType>
__global__ void __launch_bounds__(kThreads)
    to_bf16_kernel(const void* x, size_t cols, uint16_t* out, size_t out_cols,
                   unsigned long long first_index, unsigned long long* bad) {
  const size_t row = blockIdx.x;
  for (size_t i = threadIdx.x; i < out_cols; i += kThreads) {
    float value = 0;
    if (i < cols) {
      value = load<kType>(x, row * cols + i);
      report(value, first_index + row * cols + i, bad);
    }
    out[row * out_cols + i] = to_bf16(value);
  }
}

template <DType kType>
__global__ void __launch_bounds__(kThreads)
    to_f32_kernel(const void* x, size_t n, float* out, unsigned long long first_index,
                  unsigned long long* bad) {
  const size_t i = blockIdx.x * size_t{kThreads} + threadIdx.x;
  if (i >= n) return;
  const float value = load<kType>(x, i);
  report(value, first_index + i, bad);
  if (out != nullptr) out[i] = value;
}

template <DType kType>
__global__ void __launch_bounds__(kThreads)
    encode_kv_kernel(const float* kv, size_t kv_dim, void* k, void* v, unsigned long long* bad) {
  const size_t row = blockIdx.x;
  for (size_t i = threadIdx.x; i < 2 * kv_dim; i += kThreads) {
    void* const plane = i < kv_dim ? k : v;
    const size_t at = row * kv_dim + (i < kv_dim ? i : i - kv_dim);
    store<kType>(plane, at, kv[row * 2 * kv_dim + i]);
    report(load<kType>(plane, at), row, bad);
  }
}

// A pointer to the instance of `kernel` for a type that the host knows.
#define BLEND_OF_TYPE(kernel, type)             \
  ((type) == DType::f32   ? &kernel<DType::f32> \
   : (type) == DType::f16 ? &kernel<DType::f16> \
                          : &kernel<DType::bf16>)

}  // namespace

void embed(const void* table, DType table_type, const int32_t* tokens, const Rows& out,
           cudaStream_t stream) {
  if (out.n == 0) return;
  const auto kernel = BLEND_OF_TYPE(embed_kernel, table_type);
  auto* const to = static_cast<float*>(out.data);
  const size_t cols = out.cols;
  BLEND_LAUNCH(kernel, static_cast<unsigned>(out.n), kThreads, 0, stream, table, tokens, cols, to);
}

void add_bias(const Rows& x, const float* bias, cudaStream_t stream) {
  if (x.n == 0) return;
  const auto kernel =
      x.type == DType::f32 ? &add_bias_kernel<DType::f32> : &add_bias_kernel<DType::bf16>;
  void* const data = x.data;
  const size_t cols = x.cols;
  BLEND_LAUNCH(kernel, static_cast<unsigned>(x.n), kThreads, 0, stream, data, cols, bias);
}

void add_rows(const Rows& x, const Rows& y, cudaStream_t stream) {
  const size_t n = x.n * x.cols;
  if (n == 0) return;
  const auto kernel = &add_kernel;
  auto* const to = static_cast<float*>(x.data);
  const auto* const from = static_cast<const float*>(y.data);
  BLEND_LAUNCH(kernel, blocks_for(n), kThreads, 0, stream, to, from, n);
}

void scale_rows(const Rows& x, float factor, cudaStream_t stream) {
  const size_t n = x.n * x.cols;
  if (n == 0) return;
  const auto kernel = &scale_kernel;
  auto* const to = static_cast<float*>(x.data);
  BLEND_LAUNCH(kernel, blocks_for(n), kThreads, 0, stream, to, factor, n);
}

void gather(const Rows& src, const uint32_t* rows, const Rows& dst, cudaStream_t stream) {
  if (dst.n == 0) return;
  const auto grid = static_cast<unsigned>(dst.n);
  const size_t cols = src.cols;
  if (src.type == DType::f32) {
    const auto kernel = &gather_kernel<uint32_t>;
    const auto* const from = static_cast<const uint32_t*>(src.data);
    auto* const to = static_cast<uint32_t*>(dst.data);
    BLEND_LAUNCH(kernel, grid, kThreads, 0, stream, from, rows, cols, to);
  } else {
    const auto kernel = &gather_kernel<uint16_t>;
    const auto* const from = static_cast<const uint16_t*>(src.data);
    auto* const to = static_cast<uint16_t*>(dst.data);
    BLEND_LAUNCH(kernel, grid, kThreads, 0, stream, from, rows, cols, to);
  }
}

void copy_from_host(void* to, const void* from, size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return;
  BLEND_LAUNCH(copy_words_kernel, blocks_for((bytes + 3) / 4), kThreads, 0, stream,
               static_cast<const uint32_t*>(from), bytes, static_cast<uint32_t*>(to));
}

void to_bf16_rows(const void* x, DType x_type, size_t n, size_t cols, uint16_t* out,
                  size_t out_cols, unsigned long long first_index, unsigned long long* bad,
                  cudaStream_t stream) {
  if (n == 0) return;
  const auto kernel = BLEND_OF_TYPE(to_bf16_kernel, x_type);
  BLEND_LAUNCH(kernel, static_cast<unsigned>(n), kThreads, 0, stream, x, cols, out, out_cols,
               first_index, bad);
}

void to_f32(const void* x, DType x_type, size_t n, float* out, unsigned long long first_index,
            unsigned long long* bad, cudaStream_t stream) {
  if (n == 0) return;
  const auto kernel = BLEND_OF_TYPE(to_f32_kernel, x_type);
  BLEND_LAUNCH(kernel, blocks_for(n), kThreads, 0, stream, x, n, out, first_index, bad);
}

void check_finite(const void* x, DType x_type, size_t n, unsigned long long first_index,
                  unsigned long long* bad, cudaStream_t stream) {
  to_f32(x, x_type, n, nullptr, first_index, bad, stream);
}

void encode_kv(const float* kv, size_t n, size_t kv_dim, DType type, void* k, void* v,
               unsigned long long* bad, cudaStream_t stream) {
  if (n == 0) return;
  const auto kernel = BLEND_OF_TYPE(encode_kv_kernel, type);
  BLEND_LAUNCH(kernel, static_cast<unsigned>(n), kThreads, 0, stream, kv, kv_dim, k, v, bad);
}

}  // namespace blend::kernels::cuda
