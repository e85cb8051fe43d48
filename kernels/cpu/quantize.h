// Numbers to 8 or 4 bits and back: value = base + step * q.
//
// 8 bits: base 0, q in -127 .. 127. 4 bits: q in 0 .. 15, two to a byte. Scales (`step`) and bases
// belong either to columns (K, whose channels differ) or to groups of a row's columns (V, whose
// tokens differ); KIVI (Liu et al., 2024) has the reasons. Results are clamped to what dtype can
// hold.
#pragma once

#include <cstddef>
#include <cstdint>

#include "formats/half.h"

namespace blend::kernels {

inline constexpr size_t kGroup4 = 32;  // values that share a scale and a base in 4 bits

// Bytes that n values of one group of columns take in 4 bits. Byte i holds value i in its low half
// and value i + nibble_bytes(n) in its high half.
constexpr size_t nibble_bytes(size_t n) { return (n + 1) / 2; }
constexpr size_t n_groups(size_t cols, size_t group) { return (cols + group - 1) / group; }
// Bytes of a row in 4 bits by groups.
constexpr size_t nibble_row_bytes(size_t cols) {
  return cols / kGroup4 * (kGroup4 / 2) + nibble_bytes(cols % kGroup4);
}

// Least and largest value so far of each column; x, lo, hi: [cols]. Thread-safe, as all kernels.
void range_columns(const float* x, size_t cols, float* lo, float* hi);
// The same for each group of `group` columns, the last perhaps shorter; lo, hi: [n_groups].
void range_groups(const float* x, size_t cols, size_t group, float* lo, float* hi);

// x: [cols]; step: [n_groups(cols, group)], >= 0; 0 gives 0. Rounds to nearest even.
void quantize8(const float* x, size_t cols, const float* step, size_t group, int8_t* out);
// q, out: [rows, cols], out of dtype; step of row r begins at r * step_stride.
void dequantize8(const int8_t* q, size_t rows, size_t cols, const float* step, size_t step_stride,
                 size_t group, DType dtype, std::byte* out);

// n multiples of one scale.
void dequantize16(const int16_t* q, size_t n, float step, DType dtype, std::byte* out);

// One row of bytes of two rows of values, `high` perhaps null; all [cols].
void quantize4_columns(const float* low, const float* high, size_t cols, const float* base,
                       const float* step, uint8_t* out);
void dequantize4_columns(const uint8_t* q, size_t cols, const float* base, const float* step,
                         DType dtype, std::byte* low, std::byte* high);
// One row by groups of kGroup4; x: [cols], base, step: [n_groups], out: [nibble_row_bytes(cols)].
void quantize4_groups(const float* x, size_t cols, const float* base, const float* step,
                      uint8_t* out);
void dequantize4_groups(const uint8_t* q, size_t cols, const float* base, const float* step,
                        DType dtype, std::byte* out);

// Scalar references that encode and decode one value.
int quantize8_ref(float x, float step);
int quantize4_ref(float x, float base, float step);
// As f32, before rounding to dtype.
float dequantize_ref(int q, float base, float step, DType dtype);

}  // namespace blend::kernels
