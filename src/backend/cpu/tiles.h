// How a product y [m, n] = x W^T is cut into tiles of y, of which each is one thread's work.
#pragma once

#include <cstddef>
#include <cstdint>

namespace blend::cpu {

// What a tile is made of: blocks of rows and panels of columns (kernels/cpu/gemm_f32.h).
struct TileUnits {
  int64_t rows = 1;
  int64_t columns = 1;
  int64_t most_rows = 0;  // of a tile, so that its part of x stays in a core's cache
};

// y [row .. row + rows, column .. column + columns].
struct Tile {
  int64_t row, rows, column, columns;
};

// Tiles are whole units but for the last of a row or column of them.
struct TilePlan {
  int64_t m = 0, n = 0;
  int64_t rows = 0, columns = 0;  // of a tile
  int64_t row_tiles = 0, column_tiles = 0;

  size_t n_tiles() const { return static_cast<size_t>(row_tiles * column_tiles); }
  // Neighbours share their columns, so that this part of W is read from memory once.
  Tile tile(size_t i) const;
};

// most_columns: of a tile, where it is less than what the plan would choose.
TilePlan plan_tiles(int64_t m, int64_t n, int64_t k, uint32_t n_threads, const TileUnits& units,
                    int64_t most_columns = INT64_MAX);

// How many panels of `elements` weights each are a thread's piece of a product of few rows.
int64_t panels_per_piece(int64_t n_panels, int64_t elements, int64_t m, uint32_t n_threads);

// As near to `size` as equal parts of n, which is not 0, allow, in whole units.
int64_t even_part(int64_t n, int64_t size, int64_t unit);

// Rows of x of k inputs of `bytes` each that fill an eighth of a core's second-level cache: most of
// it is for the tile's part of y. Of one core with AVX-512 and 2 MiB, at k = n = 2048 and m = 512,
// GFLOP/s: half 154, an eighth 160, a sixteenth 157.
int64_t rows_in_cache(int64_t k, int64_t bytes);

}  // namespace blend::cpu
