// How a product of m rows and n columns is cut into calls of the library.
#pragma once

#include <cstdint>

namespace blend::cpu {

struct TilePlan {
  int64_t rows = 0;     // of a tile; the last may have fewer
  int64_t columns = 0;  // of a tile, a multiple of kPanelColumns; the last may have fewer
  int64_t row_tiles = 0;
  int64_t column_tiles = 0;
};
inline constexpr int64_t kPanelColumns = 64;

// Measured on 2 quiet cores with AVX-512, f32, k = 2048, n = 8192: at m = 512, tiles of 256 x 512
// reach 483 GFLOP/s, 256 x all columns 494, 64 x 512 473, 64 x all 426; at m = 3072, 256 x 512 495;
// at m = 77, 80 x 512 427, 40 x all 367; at m = 1, 1 x 512 32 (64 GB/s of weights), all columns on
// one core 25. So tiles are 256 x 512, made smaller only to give every thread two; but small
// products (W of 8 MiB at most) of many rows are cut along rows only: at m = 512, k = 576 n = 3072
// 464 instead of 443, n = 576 462 instead of 434, for a tile must be copied to its place, which
// weighs more the smaller k is. No tile has more than `most_columns`, a multiple of kPanelColumns.
TilePlan plan_tiles(int64_t m, int64_t n, int64_t k, uint32_t n_threads,
                    int64_t most_columns = INT64_MAX);

}  // namespace blend::cpu
