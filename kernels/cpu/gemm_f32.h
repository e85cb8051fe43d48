// The inner part of the f32 GEMM, y = x W^T, after Goto and van de Geijn, "Anatomy of
// High-Performance Matrix Multiplication" (ACM TOMS 2008), section 4.
//
//   W [n, k] lies in panels of `columns` of its rows, [panel][k][columns], zeros after row n;
//   x [m, k] lies in blocks of `rows` of its rows,    [block][k][rows],    zeros after row m.
//
// A register tile is a block times a panel: for each of the k, the panel's row is loaded into a few
// vectors and multiplied by each of the block's numbers, which are broadcast. Sums over
// gemm_depth(k) products are added to y at a time: that part of a panel stays in the first-level
// cache while the blocks pass by, and that part of the blocks in the second.
//
// The depth is the same for every instruction set and every m, and each product is added by one
// fused multiply-add. So an element of y has the same bits wherever it is in a tile and
// whatever rows are beside it, and on every machine with these instructions (SSE4 has none).
#pragma once

#include <cstddef>

#include "formats/half.h"

namespace blend::kernels {

// At most. A first-level cache with AVX-512 has 48 KiB: a panel's part takes 28 and that of a block
// 12. (One Zen 5 core, m = 512, relative to oneDNN: 320 93 % at k = n = 2048 and 91 % at k = 8192,
// 192 97 and 94 %; with AVX2, whose panels are half as wide, no difference.)
inline constexpr size_t kGemmDepth = 224;
// Even parts of k: each costs a pass over y.
constexpr size_t gemm_depth(size_t k) {
  const size_t parts = (k + kGemmDepth - 1) / kGemmDepth;
  return parts == 0 ? 0 : ((k + parts - 1) / parts + 7) / 8 * 8;
}

// Shape for the instruction set in use.
struct GemmShape {
  size_t rows, columns;
};
GemmShape gemm_shape();
// Whether panels may be of f16: widening it is one instruction.
bool gemm_widens_f16();

struct GemmTile {
  size_t m = 0, n = 0, k = 0;
  const float* x = nullptr;  // the blocks, or x itself
  bool as_it_is = false;     // x is [m, k] without blocks, m <= kRowsAsTheyAre
  const void* w = nullptr;   // the panels, of `dtype`
  DType dtype = DType::f32;
  float* y = nullptr;  // [m, n], its rows y_stride apart
  size_t y_stride = 0;
  bool accumulate = false;   // y += x W^T
  float* scratch = nullptr;  // [kGemmDepth * columns]: a panel's part as f32; not for f32
  // Where k comes in parts, the sums between them: [m and n rounded up to whole blocks and panels].
  // Null: they are kept in y. Rows of y a power of two apart map to the same cache sets, so a
  // tile's do not stay in a cache.
  float* sums = nullptr;
  const void* next_w = nullptr;  // this thread's next panels, if known
};
// This few rows are read in place: that costs less than putting them into a block.
inline constexpr size_t kRowsAsTheyAre = 4;
void gemm_tile(const GemmTile& tile);

// The scalar reference, with the same operands, sums in double.
void gemm_tile_ref(const GemmTile& tile);

}  // namespace blend::kernels
