#include "backend/cpu/tile_matmuls.h"

#include <algorithm>
#include <utility>

#include "backend/cpu/library.h"

namespace blend::cpu {

Result<TileMatmuls> TileMatmuls::of(MatmulCache& cache, const TilePlan& plan,
                                    const MatmulKey& whole) {
  TileMatmuls made;
  made.plan_ = plan;
  made.m_ = whole.m;
  made.n_ = whole.n;
  BLEND_RETURN_IF_ERROR(guarded([&] {
    for (size_t r = 0; r < 2; ++r) {
      for (size_t c = 0; c < 2; ++c) {
        // Full tiles need no primitive where the last is the only one.
        if ((r == 0 && plan.row_tiles == 1) || (c == 0 && plan.column_tiles == 1)) continue;
        MatmulKey key = whole;
        key.m = r == 1 ? whole.m - (plan.row_tiles - 1) * plan.rows : plan.rows;
        key.n = c == 1 ? whole.n - (plan.column_tiles - 1) * plan.columns : plan.columns;
        auto matmul = cache.get(key);
        made.library_bytes_ = std::max(made.library_bytes_, matmul->scratch_bytes);
        made.matmuls_[r][c] = std::move(matmul);
      }
    }
    return Status::ok();
  }));
  return made;
}

Tile TileMatmuls::tile(size_t i) const {
  const int64_t row_tile = static_cast<int64_t>(i) % plan_.row_tiles;
  const int64_t column_tile = static_cast<int64_t>(i) / plan_.row_tiles;
  const int64_t row = row_tile * plan_.rows, column = column_tile * plan_.columns;
  return {row,
          std::min(plan_.rows, m_ - row),
          column,
          std::min(plan_.columns, n_ - column),
          column_tile,
          *matmuls_[row_tile == plan_.row_tiles - 1][column_tile == plan_.column_tiles - 1]};
}

}  // namespace blend::cpu
