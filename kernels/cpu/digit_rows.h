// Few rows of x as integers, for products with quantized weights: y = x W^T. Products and the sums
// of four of them are exact, the rest is f32.
//
// 32 elements of x share a scale, a power of two, and are integers of 20 bits and a sign.
// (k = 2048, normal x and w: y is off by 1e-6 of its mean size; in f32 by 3e-7.) An integer is
// three digits of seven bits,
//   x ~ scale (d0 + 2^7 d1 + 2^14 d2), d0 and d1 in -64 .. 63, d2 in -64 .. 64,
// so that the sum of two products of a digit and a code of eight bits fits in sixteen (pmaddubsw):
// 2 * 255 * 64 < 2^15. With codes as they lie, unsigned, w = step * code - least:
//   sum x w = step * (sum of x code) - least * (sum of x).
// Converting codes to f32 takes longer than these products do, unless many rows of x share it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/few_rows.h"

namespace blend::kernels {

inline constexpr size_t kDigitGroup = 32;  // elements that share a scale

// Where a row of x lies, as digit_rows_pack() writes it; n groups of kDigitGroup elements, `padded`
// a multiple of 8. The values of the padding are 0. A digit of two groups is a vector of 64 bytes:
// of each four the first and the third, then the second and the fourth, as the low and the high
// nibbles of 64 bytes of a K type are.
struct DigitRow {
  const int8_t* digits;     // [(n + 3) / 4][2][3][2][kDigitGroup]
  const float* scale;       // [padded]
  const float* sum;         // [padded]
  const float* half_scale;  // [2 * padded]: those of 16 elements
  const float* half_sum;

  static constexpr size_t kDigitStride = 2 * kDigitGroup;  // from a digit to the next
  // Where the first digits of a group are.
  static constexpr size_t at(size_t g) {
    return (g / 4 * 2 + g % 2) * 3 * kDigitStride + g / 2 % 2 * kDigitGroup;
  }
  // The first group of the i-th vector; the second is two on.
  static constexpr size_t first_of_pair(size_t i) { return i / 2 * 4 + i % 2; }
  static constexpr size_t digit_bytes(size_t n) { return (n + 3) / 4 * 6 * kDigitStride; }

  static constexpr size_t padded(size_t n) { return (n + 7) / 8 * 8; }
  static constexpr size_t bytes(size_t k) {
    const size_t n = k / kDigitGroup;
    return (digit_bytes(n) + 6 * sizeof(float) * padded(n) + 63) / 64 * 64;
  }
  DigitRow(const std::byte* row, size_t k) : digits(reinterpret_cast<const int8_t*>(row)) {
    const size_t n = k / kDigitGroup;
    scale = reinterpret_cast<const float*>(row + digit_bytes(n));
    sum = scale + padded(n);
    half_scale = sum + padded(n);
    half_sum = half_scale + 2 * padded(n);
  }
};

// Whether weights of this type are multiplied so by the instructions in use: AVX2, or AVX-512 with
// VNNI. If not, the functions below must not be called.
bool digit_rows_take(BlockType blocks);
// x, packed: [m, k] and [m, DigitRow::bytes(k)], at a multiple of 32 bytes. A row with a NaN or an
// infinity gives products of NaN. Elements of less than 2^-21 of their group's greatest are 0.
void digit_rows_pack(const float* x, size_t m, size_t k, std::byte* packed);
// As few_rows(), with product.digits instead of product.x. A row of y has the same bits for any m.
void digit_rows(const FewRows& product);

}  // namespace blend::kernels
