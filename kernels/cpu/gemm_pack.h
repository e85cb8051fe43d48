// Puts operands of the GEMM into panels and blocks (gemm_f32.h, gemm_int8.h): elements of some rows
// side by side.
#pragma once

#include <cstddef>
#include <cstdint>

namespace blend::kernels {

// out[e * stride + i] = rows[i * k + e] for i < n_rows, e < k, and 0 for n_rows <= i < width. The
// elements are any four bytes; they are copied. out: [k, stride]; nothing else of it is written.
void interleave_rows(const void* rows, size_t n_rows, size_t k, size_t width, size_t stride,
                     void* out);

// The same for elements of two bytes, at any address.
void interleave_rows_16(const void* rows, size_t n_rows, size_t k, size_t width, size_t stride,
                        uint16_t* out);

// Scalar references.
void interleave_rows_ref(const void* rows, size_t n_rows, size_t k, size_t width, size_t stride,
                         void* out);

}  // namespace blend::kernels
