// The inner part of the int8 GEMM: sums of q p in 32-bit integers, which are exact, and their way
// to f32 (int8_rows.h has the arithmetic). Every instruction set gives the same bits.
//
//   y[i][j] = (sum of q p - rows[i].zero * sums[j]) * (rows[i].scale * steps[j])
//
// As in gemm_f32.h, W lies in panels and x in blocks, but the unit is a *group* of neighbouring
// inputs that one instruction multiplies and adds up: four bytes (VNNI, Arm's dot product), or two,
// which are widened to 16 bits (pmaddwd, which every x86-64 CPU has).
//
//   W [n, k], s8: [panel][groups][columns][group]
//   x [m, k], u8: [block][groups][rows], four bytes each: the group's inputs, as u8 or as u16
//
// Inputs after k are zeros in both.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/int8_rows.h"
#include "cpu/isa.h"

namespace blend::kernels {

struct Int8Shape {
  size_t rows, columns;
  size_t group;  // inputs; 0: this path has no integer products
  size_t depth;  // most groups in a part of k; 0: k is not cut into parts
  size_t whole;  // nor for at most this many rows
};
Int8Shape int8_shape(Int8Path path);

// Rows of bytes in the form of blocks: [n_groups] of four bytes. `row` describes q, and is changed
// where the path multiplies signed bytes. q: [k]; where groups have four bytes it may be the memory
// of `groups`.
void int8_groups(Int8Path path, const uint8_t* q, size_t k, uint32_t* groups, Int8Row& row);

// Whether a product of m rows is done in parts of k, so that a panel's part stays in the
// first-level cache while the blocks go by, and is widened once for them where bytes are.
inline bool int8_in_parts(const Int8Shape& shape, size_t m) {
  return shape.depth != 0 && m > shape.whole;
}

struct Int8Tile {
  size_t m = 0, n = 0, n_groups = 0;
  const uint32_t* x = nullptr;    // the blocks, or rows
  bool as_it_is = false;          // x is [m, n_groups], m <= kInt8RowsAsTheyAre
  const Int8Row* rows = nullptr;  // [m]
  const int8_t* w = nullptr;      // the panels
  const float* steps = nullptr;   // [n], to whole panels
  const int32_t* sums = nullptr;  // [n], to whole panels: of a row of W
  float* y = nullptr;             // [m, n], its rows y_stride apart
  size_t y_stride = 0;
  bool accumulate = false;  // y += x W^T
  // Scratch of a product in parts: the tile's sums, [m, n] of whole blocks and panels, and, where
  // groups are of two, a panel's part, [kInt8Depth * columns * 2]. Both begin at a whole cache
  // line.
  int16_t* widened = nullptr;
  int32_t* so_far = nullptr;
  const int8_t* next_w = nullptr;  // this thread's next panels, if known
};
inline constexpr size_t kInt8RowsAsTheyAre = 4;
void int8_tile(Int8Path path, const Int8Tile& tile);

// The scalar reference, with the same operands.
void int8_tile_ref(Int8Path path, const Int8Tile& tile);

}  // namespace blend::kernels
