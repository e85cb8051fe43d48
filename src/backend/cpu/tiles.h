// How a product y [m, n] = x W^T is cut into tiles of y, of which each is one thread's work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace blend::cpu {

// What a tile is made of: blocks of rows and panels of columns (kernels/cpu/gemm_f32.h).
struct TileUnits {
  int64_t rows = 1;
  int64_t columns = 1;
  // Of a tile: so that its parts of x and y stay in a core's cache.
  int64_t most_rows = 0;
  int64_t most_columns = INT64_MAX;
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
  // So many neighbouring column tiles take turns, and all rows go by before the next so many do: W
  // is read from memory once, and threads that begin together are at different parts of it. (At the
  // same part they fetch each line twice in the same moment, out of each other's caches. k = n =
  // 2048 and m = 512 on two Zen 3 cores: f32 68 and 79 % of the peak, f16 62 and 72 %.)
  int64_t in_turn = 1;

  size_t n_tiles() const { return static_cast<size_t>(row_tiles * column_tiles); }
  Tile tile(size_t i) const;
  // The column of the tile that the thread of tile i has next, as long as threads take turns; none
  // behind the last, nor where it is the column that tile i has.
  std::optional<int64_t> next_column(size_t i) const;
};

// As many column tiles are in turn as there are threads.
TilePlan plan_tiles(int64_t m, int64_t n, int64_t k, uint32_t n_threads, const TileUnits& units);

// How many panels of `elements` weights each are a thread's piece of a product of few rows.
int64_t panels_per_piece(int64_t n_panels, int64_t elements, int64_t m, uint32_t n_threads);

// As near to `size` as equal parts of n, which is not 0, allow, in whole units.
int64_t even_part(int64_t n, int64_t size, int64_t unit);

// The limits of a tile where a row of x has x_bytes that are used at a time and an element of y
// y_bytes: x gets a quarter of a core's second-level cache, 256 KiB at most, and y two fifths. (Of
// one core with AVX-512 and 2 MiB, at k = n = 2048 and m = 512, GFLOP/s: x with half of it 154, an
// eighth 160, a sixteenth 157. Of two Zen 3 cores with 512 KiB: an eighth 129, a quarter 143.)
TileUnits units_in_cache(int64_t rows, int64_t columns, int64_t x_bytes, int64_t y_bytes);

}  // namespace blend::cpu
