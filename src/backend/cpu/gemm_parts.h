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
  const std::byte* digits = nullptr;  // of few rows: x by kernels::digit_rows_pack()
};

// Most rows of a product that is one of few rows.
int64_t few_rows_most(const PackedMatrix& w);
int64_t few_rows_most(const DecodedMatrix& w);
// The forms in which kernels read few rows of x: as they are, interleaved, or as digits, which are
// faster for one row or two. (A Zen 3 core with AVX2, k = 2048 of Q4_K in the
// second-level cache: 1 row 26 and 39 GFLOP/s, 2 rows 35 and 44, 4 rows 53 and 47.) Parts of a
// matrix may differ in type, and so in the form they need.
class FewRowsForms {
 public:
  // steps: digits for any number of rows, so that each has the bits of one alone.
  FewRowsForms(const DecodedMatrix& w, int64_t m, bool steps);
  // 0: x is read as it is.
  size_t bytes() const { return interleaved_ + digits_; }
  // Rows are put into form in groups, each on any thread; `to`: [bytes()], at a cache line.
  size_t n_groups() const;
  size_t group_elements() const;
  void pack(const float* x, size_t group, size_t n, std::byte* to) const;
  GemmRows packed(const GemmRows& rows, const std::byte* from) const;

 private:
  size_t m_, k_;
  size_t interleaved_ = 0, digits_ = 0;  // bytes
};

// Columns [first, last) of such a product, at most `most` of them at a time; with packed weights
// `first` begins a panel. For a DecodedMatrix, rows.x and rows.digits are as FewRowsForms::packed()
// has them.
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
