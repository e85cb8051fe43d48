// The GEMM of few rows: y = x W^T with W as in the model file, or as integers with a scale a
// row. Weights are decoded in registers and multiplied there, each for several rows of x at once,
// so that only their bytes are read and only y is written.
#pragma once

#include <cstddef>

#include "formats/half.h"
#include "formats/weight_blocks.h"

namespace blend::kernels {

// Most rows of x in a product.
inline constexpr size_t kFewRowsMost = 48;
// Up to so many rows it takes less time than decoding W into panels (block_decode.h): by the
// instruction set, the form of W, and how many of x's rows of k elements stay in a cache. From
// kFewRowsAlways to kFewRowsMost.
inline constexpr size_t kFewRowsAlways = 24;
size_t few_rows_most(DType dtype, BlockType blocks, size_t k);

struct FewRows {
  const float* x = nullptr;      // [m, k] packed by few_rows_pack(); a single row may be unpacked
  const std::byte* w = nullptr;  // [n, k] of `dtype`, or of `blocks` where those are not none
  float* y = nullptr;            // [m, n], its rows y_stride apart
  size_t m = 0;                  // at most kFewRowsMost
  size_t k = 0;                  // a multiple of block_elements(blocks)
  size_t n = 0;
  size_t y_stride = 0;
  DType dtype = DType::f32;
  BlockType blocks = BlockType::none;
  bool accumulate = false;       // y += x W^T
  const float* steps = nullptr;  // [n]; if set, W is s8 instead, row j times steps[j]
  // If set, x by digit_rows_pack(), for types that digit_rows() multiplies.
  const std::byte* digits = nullptr;
};

// In f32. Rows of W are processed kFewRowsStep at a time; a rest of fewer costs more. A row of y
// has the same bits for any m.
inline constexpr size_t kFewRowsStep = 12;
void few_rows(const FewRows& product);

// Rows in groups of limited size, as even as possible.
struct RowGroups {
  size_t n, each, more;  // n groups of `each` rows, the first `more` with one more

  constexpr RowGroups(size_t m, size_t most) : n((m + most - 1) / most), each(m / n), more(m % n) {}
  constexpr size_t rows(size_t group) const { return each + (group < more ? 1 : 0); }
  constexpr size_t first(size_t group) const {
    return group * each + (group < more ? group : more);
  }
};
// The groups of m rows of x, by the instruction set in use. In each, x is stored as
// [k / lanes][rows of the group][lanes] and read sequentially; rows a power of two apart would map
// to the same cache sets.
RowGroups few_rows_groups(size_t m);
// Padded length of a row, in elements: to the most lanes that there are, so that it is the same for
// all.
inline size_t few_rows_padded(size_t k) { return (k + 15) / 16 * 16; }
// Packs groups [group, group + n_groups). x: [m, k], packed: [m, few_rows_padded(k)]
void few_rows_pack(const float* x, size_t m, size_t k, size_t group, size_t n_groups,
                   float* packed);

// The scalar reference: sums in double. x is [m, k], unpacked.
void few_rows_ref(const FewRows& product);

}  // namespace blend::kernels
