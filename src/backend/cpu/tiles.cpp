#include "backend/cpu/tiles.h"

#include <algorithm>

#include "backend/cpu/library.h"

namespace blend::cpu {

TilePlan plan_tiles(int64_t m, int64_t n, int64_t k, uint32_t n_threads, int64_t most_columns) {
  constexpr int64_t kRows = 256, kColumns = 512, kFewestRows = 64;
  constexpr double kWorthSharing = 1e5;  // FLOPs: 200 KB of f32 weights for one row, some us
  constexpr int64_t kSmall = 2 << 20;    // elements of W; 5 ms of a core for 256 rows
  if (n_threads == 1 ||
      2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) <
          kWorthSharing) {
    const int64_t rows = std::min(m, kRows);
    const int64_t columns = std::min(align(n, kPanelColumns), most_columns);
    return {rows, columns, ceil_div(m, rows), ceil_div(n, columns)};
  }
  // Whole rows of y are written where they belong. Fewer tiles are taken for it, which is well as
  // long as one takes less than a thread that loses its CPU is gone.
  if (const int64_t share = ceil_div(m, n_threads);
      n * k <= kSmall && n <= most_columns && share >= kRows / 2) {
    const int64_t rows = align(ceil_div(m, n_threads * ceil_div(share, kRows)), 8);
    return {rows, align(n, kPanelColumns), ceil_div(m, rows), 1};
  }
  TilePlan plan;
  plan.rows = align(ceil_div(m, ceil_div(m, kRows)), 8);
  plan.columns = std::min({align(n, kPanelColumns), kColumns, most_columns});
  const auto count = [&] {
    plan.rows = std::min(plan.rows, m);
    plan.row_tiles = ceil_div(m, plan.rows);
    plan.column_tiles = ceil_div(n, plan.columns);
    return plan.row_tiles * plan.column_tiles;
  };
  const int64_t wanted = 2 * static_cast<int64_t>(n_threads);
  while (count() < wanted) {
    if (plan.rows >= 2 * kFewestRows) {
      plan.rows = align(plan.rows / 2, 8);
    } else if (plan.columns > kPanelColumns) {
      plan.columns = align(plan.columns / 2, kPanelColumns);
    } else {
      break;
    }
  }
  return plan;
}

}  // namespace blend::cpu
