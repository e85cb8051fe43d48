#include "backend/cpu/tiles.h"

#include <unistd.h>

#include <algorithm>

#include "backend/cpu/sizes.h"

namespace blend::cpu {
namespace {

constexpr double kWorthSharing = 1e5;  // FLOPs: some microseconds

double flops(int64_t m, int64_t n, int64_t k) {
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}

}  // namespace

int64_t even_part(int64_t n, int64_t size, int64_t unit) {
  size = std::max(unit, size / unit * unit);
  return align(ceil_div(n, ceil_div(n, size)), unit);
}

int64_t panels_per_piece(int64_t n_panels, int64_t elements, int64_t m, uint32_t n_threads) {
  if (flops(m, n_panels, elements) < kWorthSharing) return n_panels;
  // Long enough for hardware prefetching; at least four pieces a thread; some panels are processed
  // side by side.
  constexpr int64_t kElements = 512 << 10, kSideBySide = 4;
  const int64_t most = std::min(kElements / elements, n_panels / (4 * int64_t{n_threads}));
  return most >= kSideBySide ? most / kSideBySide * kSideBySide : std::max<int64_t>(1, most);
}

TilePlan plan_tiles(int64_t m, int64_t n, int64_t k, uint32_t n_threads, const TileUnits& units) {
  const auto cut = [&](int64_t row_tiles, int64_t column_tiles) {
    TilePlan plan{m, n, 0, 0, 0, 0, static_cast<int64_t>(n_threads)};
    plan.rows = align(ceil_div(m, row_tiles), units.rows);
    plan.columns = align(ceil_div(n, column_tiles), units.columns);
    plan.row_tiles = ceil_div(m, plan.rows);
    plan.column_tiles = ceil_div(n, plan.columns);
    return plan;
  };
  // As few as possible.
  const TilePlan few = cut(ceil_div(m, std::min(m, std::max(units.rows, units.most_rows))),
                           ceil_div(n, std::min(n, std::max(units.columns, units.most_columns))));
  if (n_threads == 1 || flops(m, n, k) < kWorthSharing) return few;
  // A thread's work, in rows x columns, plus the overhead of its tiles: their parts of x and of W
  // come from farther away, and W may have to be widened. That is worth some columns and some rows.
  // (For W, k = n = 2048, two Zen 3 cores: tiles of 12 rows reach 60 % of the peak where W is f16
  // and 74 % where it is f32, of 48 rows 83 and 86 %.)
  const auto cost = [&](const TilePlan& plan) {
    constexpr int64_t kColumnsWorth = 8, kRowsWorth = 4;
    const int64_t tiles = plan.row_tiles * plan.column_tiles, area = plan.rows * plan.columns;
    const int64_t besides = plan.rows * kColumnsWorth + plan.columns * kRowsWorth;
    // The last tiles of a row or column are smaller: a thread may get whole ones only.
    const int64_t rows = align(m, units.rows), columns = align(n, units.columns);
    const int64_t whole = (rows / plan.rows) * (columns / plan.columns);
    const int64_t less = rows * columns - whole * area;
    const int64_t most_whole = ceil_div(whole, n_threads), most = ceil_div(tiles, n_threads);
    const int64_t smaller = tiles == whole ? 0 : ceil_div(less, tiles - whole);
    return most_whole * area + (most - most_whole) * smaller + most * besides;
  };
  TilePlan best = few;
  // Two tiles a thread at least: a thread that loses its CPU leaves one to the others.
  for (int64_t row_tiles = few.row_tiles; row_tiles <= 4 * few.row_tiles; row_tiles *= 2) {
    for (const int64_t each : {2, 3, 4, 6}) {
      const int64_t wanted = ceil_div(each * n_threads, row_tiles);
      const TilePlan plan = cut(row_tiles, std::max(few.column_tiles, wanted));
      const bool too_few = static_cast<int64_t>(best.n_tiles()) < 2 * int64_t{n_threads};
      if (too_few ? plan.n_tiles() > best.n_tiles() : cost(plan) < cost(best)) best = plan;
    }
  }
  return best;
}

Tile TilePlan::tile(size_t i) const {
  const int64_t first = static_cast<int64_t>(i) / (row_tiles * in_turn) * in_turn;
  const int64_t side_by_side = std::min(in_turn, column_tiles - first);
  const int64_t j = static_cast<int64_t>(i) - first * row_tiles;
  const int64_t row = j / side_by_side * rows, column = (first + j % side_by_side) * columns;
  return {row, std::min(rows, m - row), column, std::min(columns, n - column)};
}

std::optional<int64_t> TilePlan::next_column(size_t i) const {
  const size_t next = i + static_cast<size_t>(in_turn);
  if (next >= n_tiles()) return std::nullopt;
  const int64_t column = tile(next).column;
  return column == tile(i).column ? std::nullopt : std::optional(column);
}

TileUnits units_in_cache(int64_t rows, int64_t columns, int64_t x_bytes, int64_t y_bytes) {
  // Where the system does not report it: most cores have as much or more.
  constexpr int64_t kUsual = 512 << 10, kMostOfX = 256 << 10;
  static const int64_t cache = [] {
    const int64_t found = sysconf(_SC_LEVEL2_CACHE_SIZE);
    return found > 0 ? found : kUsual;
  }();
  const int64_t most_rows = std::max<int64_t>(1, std::min(cache / 4, kMostOfX) / x_bytes);
  const int64_t most_columns = cache * 2 / 5 / (std::max(rows, most_rows) * y_bytes);
  return {rows, columns, most_rows, std::clamp<int64_t>(most_columns, 256, 1024)};
}

}  // namespace blend::cpu
