// Row-wise operations: normalisation, the feed-forward's gate, embedding, gathering, sums,
// conversion.
//
// Shapes are row-major and contiguous; pointers are of the device, aligned to 256 bytes at a
// tensor's start. Types are f32 or bf16 unless said otherwise. Launches are ordered by the stream.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "formats/half.h"

namespace blend::kernels::cuda {

// A matrix of one of the activation types.
struct Rows {
  void* data = nullptr;  // [n, cols] of type
  DType type = DType::f32;
  size_t n = 0;
  size_t cols = 0;
};

// out = x / sqrt(mean(x^2) + eps) * weight; weight: [cols]; out may be x's memory if of its type.
void rms_norm(const Rows& x, const float* weight, float eps, const Rows& out, cudaStream_t stream);

// out = silu(gate) * up; gate_up: [n, 2 * cols] = gate | up; out: [n, cols].
void swiglu(const Rows& gate_up, const Rows& out, cudaStream_t stream);
// The same with GELU by its tanh form.
void geglu(const Rows& gate_up, const Rows& out, cudaStream_t stream);

// x[i] += bias; bias: f32 [cols].
void add_bias(const Rows& x, const float* bias, cudaStream_t stream);

// x[i, j] = x[i, j] + y[i, j], f32 both.
void add_rows(const Rows& x, const Rows& y, cudaStream_t stream);

// x *= factor; f32.
void scale_rows(const Rows& x, float factor, cudaStream_t stream);

// rms_norm() of each of the first n_heads heads of every row, in place; weight: f32 [head_dim].
void norm_heads(const Rows& x, uint32_t n_heads, uint32_t head_dim, const float* weight, float eps,
                cudaStream_t stream);

// to[0..bytes) = from, which is pinned host memory that the kernel reads itself, without waiting
// for the copy engines. Both aligned to 4 bytes.
void copy_from_host(void* to, const void* from, size_t bytes, cudaStream_t stream);

// out[i] = table[tokens[i]]; table: [.., cols] of table_type (f16 too); tokens: device [n]; out
// f32.
void embed(const void* table, DType table_type, const int32_t* tokens, const Rows& out,
           cudaStream_t stream);

// dst[i] = src[rows[i]]; rows: device [dst.n]; no memory in common.
void gather(const Rows& src, const uint32_t* rows, const Rows& dst, cudaStream_t stream);

// out[i, j] = bf16 of x[i, j], 0 for x.cols <= j < out_cols; x of x_type (f16 too).
// bad (may be null): device, lowered to the index of the first element that is not finite, counted
// from first_index at x[0, 0].
void to_bf16_rows(const void* x, DType x_type, size_t n, size_t cols, uint16_t* out,
                  size_t out_cols, unsigned long long first_index, unsigned long long* bad,
                  cudaStream_t stream);

// out[i] = x[i], f32; the same check.
void to_f32(const void* x, DType x_type, size_t n, float* out, unsigned long long first_index,
            unsigned long long* bad, cudaStream_t stream);

// Lowers *bad to the index of the first element of x that is not finite.
void check_finite(const void* x, DType x_type, size_t n, unsigned long long first_index,
                  unsigned long long* bad, cudaStream_t stream);

// Splits and rounds: kv: f32 [n, 2 * kv_dim] = K | V; k, v: [n, kv_dim] of type (f16 too).
// *bad is lowered to the first row with a value that is not finite in `type`.
void encode_kv(const float* kv, size_t n, size_t kv_dim, DType type, void* k, void* v,
               unsigned long long* bad, cudaStream_t stream);

}  // namespace blend::kernels::cuda
