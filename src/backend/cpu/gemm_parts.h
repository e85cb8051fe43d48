// What Gemm's products are made of. Of few rows: ranges of columns. Of many: rows of x in blocks,
// tiles, and each thread's scratch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "backend/cpu/matrix.h"
#include "backend/cpu/tiles.h"
#include "cpu/gemm_f32.h"

namespace blend::cpu {

TileUnits gemm_units();

// Some rows of a product.
struct GemmRows {
  const float* x;  // [m, in]
  int64_t m;
  float* y;  // [m, out]
  bool accumulate;
};

// Most rows of a product that is one of few rows.
int64_t few_rows_most(const PackedMatrix& w);
int64_t few_rows_most(const DecodedMatrix& w);
// Columns [first, last) of such a product, at most `most` of them at a time; with packed weights
// `first` begins a panel. x: as it is, or for a DecodedMatrix and more than one row packed by
// few_rows_pack().
void multiply_columns(const PackedMatrix& w, const GemmRows& rows, int64_t first, int64_t last,
                      int64_t most);
void multiply_columns(const DecodedMatrix& w, const GemmRows& rows, int64_t first, int64_t last,
                      int64_t most);

// Columns in a piece of products of few rows that have n_columns together.
int64_t few_rows_piece(const PackedMatrix& w, int64_t n_columns, uint32_t n_threads);
int64_t few_rows_piece(const DecodedMatrix& w, int64_t n_columns, uint32_t n_threads);

// A product whose rows are in blocks, its tiles, and each thread's scratch.
struct GemmBlocks {
  GemmRows rows;
  TilePlan plan;
  const float* x;  // the blocks
  std::byte* scratch;
  size_t sums, per_thread;  // bytes of a tile's sums, and of all that a thread has

  // Tile `t` on a thread, except for W.
  kernels::GemmTile tile(const Tile& t, int64_t k, int64_t out, uint32_t thread) const;
  std::byte* scratch_of(uint32_t thread) const { return scratch + per_thread * thread + sums; }
};

TilePlan gemm_plan(const PackedMatrix& w, int64_t m, const TileUnits& units, uint32_t n_threads);
TilePlan gemm_plan(const DecodedMatrix& w, int64_t m, TileUnits units, uint32_t n_threads);

// Bytes of a tile's sums between the parts of k, and of a thread's scratch after those.
size_t gemm_sums_bytes(int64_t k, const TilePlan& plan);
size_t gemm_scratch_bytes(const PackedMatrix& w, const TilePlan& plan);
size_t gemm_scratch_bytes(const DecodedMatrix& w, const TilePlan& plan);

// Before the first tile: no thread has decoded anything.
void begin_tiles(const PackedMatrix& w, const GemmBlocks& blocks, uint32_t n_threads);
void begin_tiles(const DecodedMatrix& w, const GemmBlocks& blocks, uint32_t n_threads);
// Tile `i`, of any product that shares the scratch. next: the column of this thread's next tile, if
// known.
void multiply_tile(const PackedMatrix& w, const GemmBlocks& blocks, size_t i,
                   std::optional<int64_t> next, uint32_t thread);
void multiply_tile(const DecodedMatrix& w, const GemmBlocks& blocks, size_t i,
                   std::optional<int64_t> next, uint32_t thread);

// Blocks of x: how many there are, and one of them put where it belongs.
size_t n_blocks(const GemmRows& rows);
void pack_block(const GemmRows& rows, int64_t k, size_t block, float* blocks);

}  // namespace blend::cpu
