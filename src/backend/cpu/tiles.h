// How a product y [m, n] = x W^T is cut into tiles of y, each of them one thread's work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace blend::cpu {

// What a tile is made of: blocks of rows and panels of columns (kernels/cpu/gemm_f32.h).
struct TileUnits {
  int64_t rows = 1;
  int64_t columns = 1;
  // Limits of a tile, so that its parts of x and y stay in a core's cache.
  int64_t most_rows = 0;
  int64_t most_columns = INT64_MAX;
};

// y [row .. row + rows, column .. column + columns].
struct Tile {
  int64_t row, rows, column, columns;
};

// Tiles are whole units except for the last of a row or column of them.
struct TilePlan {
  int64_t m = 0, n = 0;
  int64_t rows = 0, columns = 0;  // of a tile
  int64_t row_tiles = 0, column_tiles = 0;
  // This many neighbouring column tiles alternate, and all rows pass by before the next group: W
  // is read from memory once, and threads that begin together are at different parts of it. (At the
  // same part they fetch each line twice in the same moment, from each other's caches. k = n =
  // 2048 and m = 512 on two Zen 3 cores: f32 68 and 79 % of the peak, f16 62 and 72 %.)
  int64_t in_turn = 1;

  size_t n_tiles() const { return static_cast<size_t>(row_tiles * column_tiles); }
  Tile tile(size_t i) const;
  // The column of the next tile of tile i's thread, as long as threads alternate; none after the
  // last, nor where it is the column of tile i.
  std::optional<int64_t> next_column(size_t i) const;
};

// The number of column tiles that alternate is that of the threads.
TilePlan plan_tiles(int64_t m, int64_t n, int64_t k, uint32_t n_threads, const TileUnits& units);

// Panels of `elements` weights each in one piece of a product of few rows.
int64_t panels_per_piece(int64_t n_panels, int64_t elements, int64_t m, uint32_t n_threads);

// The size nearest to `size` that cuts n, which is not 0, into equal parts, in whole units.
int64_t even_part(int64_t n, int64_t size, int64_t unit);

// The limits of a tile where a row of x has x_bytes in use at a time and an element of y
// y_bytes: x gets a quarter of a core's second-level cache, 256 KiB at most, and y two fifths. (Of
// one core with AVX-512 and 2 MiB, at k = n = 2048 and m = 512, GFLOP/s: x with half of it 154, an
// eighth 160, a sixteenth 157. Of two Zen 3 cores with 512 KiB: an eighth 129, a quarter 143.)
TileUnits units_in_cache(int64_t rows, int64_t columns, int64_t x_bytes, int64_t y_bytes);

}  // namespace blend::cpu
