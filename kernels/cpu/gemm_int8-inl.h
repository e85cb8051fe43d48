// The register tiles of gemm_int8.h, written once for all instructions that multiply bytes.
//
// Included inside a namespace and inside the compiler's attributes of an instruction set, so it
// includes nothing and has no guard: the including file has <algorithm>, <array>, <cstddef>,
// <cstdint>, <utility>, "cpu/fetch_ahead.h", "cpu/gemm_int8.h" and "cpu/simd.h". A Dot has
//   kLanes, kRows, kGroup      sums of a vector; rows of a block; inputs of a group
//   Sums, Bytes                vector types
//   zero(), broadcast(uint32_t group), load(const int8_t* groups), dot(Sums, Bytes x, Bytes w)
//   kFourOfX; where true: dot_of_four(Sums, Bytes xs, size_t i, Bytes w), group i of four as x
//   finish(Sums, const Int8Row&, const int32_t* sums, const float* steps, float* y, bool add)
//   kVectorBytes               bytes that load() reads
//   kDepth                     most groups in a part of k; 0: k is not cut; otherwise:
//   load_sums(const int32_t*), store_sums(Sums, int32_t*), add(Sums, Sums)

constexpr size_t kInt8Vectors = 2;  // of a panel's row
// Groups between two rounds of prefetching.
constexpr size_t kInt8Ahead = 8;

// Some rows of x times kPanels panels, over all of k.
struct Int8Part {
  const uint32_t* x;
  size_t n_groups;
  const int8_t* w;
  size_t panel;  // bytes
  const Int8Row* rows;
  const float* steps;
  const int32_t* sums;
  float* y;
  size_t y_stride;
  size_t n_rows;  // rows of y to be written: the tile's, or one less
  bool add;
  FetchAhead ahead = {};
  // Where k comes in parts: the tile's sums so far, [rows of a block][a panel's columns], and the
  // index of the part.
  int32_t* so_far = nullptr;
  bool first = true;
  bool last = true;
};

// x: group e of row i is at x[e * kStep + i], or, where kStep is 0, at x[i * n_groups + e].
template <class Dot, size_t kTileRows, size_t kPanels, size_t kStep>
HWY_INLINE void int8_register_tile(Int8Part p) {
  constexpr size_t kWide = kPanels * kInt8Vectors;
  constexpr size_t kVectorBytes = Dot::kVectorBytes;
  const uint32_t* HWY_RESTRICT x = p.x;
  const int8_t* HWY_RESTRICT w = p.w;
  typename Dot::Sums sum[kTileRows][kWide];
  BLEND_UNROLL
  for (size_t i = 0; i < kTileRows; ++i) {
    BLEND_UNROLL
    for (size_t v = 0; v < kWide; ++v) sum[i][v] = Dot::zero();
    if (!p.last) continue;
    BLEND_UNROLL
    for (size_t v = 0; v < kWide * Dot::kLanes; v += 16) {
      fetch_result(p.y + i * p.y_stride + v);
    }
  }
  for (size_t begin = 0; begin < p.n_groups; begin += kInt8Ahead) {
    p.ahead.some_lines();
    const size_t end = std::min(begin + kInt8Ahead, p.n_groups);
#pragma GCC unroll 4
    for (size_t e = begin; e < end; ++e) {
      typename Dot::Bytes row[kWide];
      BLEND_UNROLL
      for (size_t v = 0; v < kWide; ++v) {
        row[v] = Dot::load(w + v / kInt8Vectors * p.panel +
                           (e * kInt8Vectors + v % kInt8Vectors) * kVectorBytes);
      }
      if constexpr (Dot::kFourOfX && kStep != 0) {
        // As in gemm_f32.cpp: a register for four rows' groups, not for one's.
        static_assert(kStep % 4 == 0);
        typename Dot::Bytes four[(kTileRows + 3) / 4];
        BLEND_UNROLL
        for (size_t i = 0; i < kTileRows; i += 4) {
          four[i / 4] = Dot::load(reinterpret_cast<const int8_t*>(x + e * kStep + i));
        }
        BLEND_UNROLL
        for (size_t i = 0; i < kTileRows; ++i) {
          BLEND_UNROLL
          for (size_t v = 0; v < kWide; ++v) {
            sum[i][v] = Dot::dot_of_four(sum[i][v], four[i / 4], i % 4, row[v]);
          }
        }
      } else {
        BLEND_UNROLL
        for (size_t i = 0; i < kTileRows; ++i) {
          const auto xi = Dot::broadcast(kStep != 0 ? x[e * kStep + i] : x[i * p.n_groups + e]);
          BLEND_UNROLL
          for (size_t v = 0; v < kWide; ++v) sum[i][v] = Dot::dot(sum[i][v], xi, row[v]);
        }
      }
    }
  }
  if constexpr (Dot::kDepth != 0) {
    BLEND_UNROLL
    for (size_t i = 0; i < kTileRows; ++i) {
      BLEND_UNROLL
      for (size_t v = 0; v < kWide; ++v) {
        int32_t* const at = p.so_far + (i * kWide + v) * Dot::kLanes;
        if (!p.first) sum[i][v] = Dot::add(sum[i][v], Dot::load_sums(at));
        if (!p.last) Dot::store_sums(sum[i][v], at);
      }
    }
    if (!p.last) return;
  }
  BLEND_UNROLL
  for (size_t i = 0; i < kTileRows; ++i) {
    if (i + 1 == kTileRows && i == p.n_rows) break;
    BLEND_UNROLL
    for (size_t v = 0; v < kWide; ++v) {
      const size_t j = v * Dot::kLanes;
      Dot::finish(sum[i][v], p.rows[i], p.sums + j, p.steps + j, p.y + i * p.y_stride + j, p.add);
    }
  }
}

template <class Dot, size_t kTileRows, size_t kStep>
void int8_tile_of(const Int8Part& p, size_t n_columns) {
  constexpr size_t kColumns = kInt8Vectors * Dot::kLanes;
  if (n_columns >= kColumns) return int8_register_tile<Dot, kTileRows, 1, kStep>(p);
  // A panel in which W ends.
  float y[kTileRows * kColumns];
  Int8Part wide = p;
  wide.y = y;
  wide.y_stride = kColumns;
  wide.add = false;
  int8_register_tile<Dot, kTileRows, 1, kStep>(wide);
  if (!p.last) return;
  for (size_t i = 0; i < p.n_rows; ++i) {
    for (size_t j = 0; j < n_columns; ++j) {
      float& to = p.y[i * p.y_stride + j];
      to = p.add ? to + y[i * kColumns + j] : y[i * kColumns + j];
    }
  }
}

// Indexed by half the number of rows, rounded up: tiles are compiled for even ones.
template <class Dot, size_t... kHalf>
HWY_INLINE void int8_any_tile(const Int8Part& p, size_t n_columns, std::index_sequence<kHalf...>) {
  using Tile = void (*)(const Int8Part&, size_t);
  constexpr std::array<Tile, sizeof...(kHalf)> kTiles = {
      &int8_tile_of<Dot, 2 * kHalf + 2, Dot::kRows>...};
  kTiles[(p.n_rows - 1) / 2](p, n_columns);
}

// kTileRows rows of x, not in blocks. Some panels go side by side, as in gemm_f32.cpp.
template <class Dot, size_t kTileRows>
void int8_few(const Int8Tile& t) {
  constexpr size_t kColumns = kInt8Vectors * Dot::kLanes;
  constexpr size_t kAtOnce = std::min<size_t>(4, std::max<size_t>(1, Dot::kRows / 2 / kTileRows));
  const size_t panel = t.n_groups * kColumns * Dot::kGroup;
  size_t j = 0;
  const auto part = [&] {
    return Int8Part{t.x,        t.n_groups,  t.w + j / kColumns * panel,
                    panel,      t.rows,      t.steps + j,
                    t.sums + j, t.y + j,     t.y_stride,
                    kTileRows,  t.accumulate};
  };
  for (; j + kAtOnce * kColumns <= t.n; j += kAtOnce * kColumns) {
    int8_register_tile<Dot, kTileRows, kAtOnce, 0>(part());
  }
  for (; j < t.n; j += kColumns)
    int8_tile_of<Dot, kTileRows, 0>(part(), std::min(kColumns, t.n - j));
}

// All blocks of x times the panels' groups from `first` on, at most `part` of them. panel_of(at,
// depth): where the Dot finds the part of a panel at `at`.
template <class Dot, class PanelOf>
void int8_blocks(const Int8Tile& t, size_t first, size_t part, const PanelOf& panel_of) {
  constexpr size_t kColumns = kInt8Vectors * Dot::kLanes, kGroupBytes = kColumns * Dot::kGroup;
  const size_t n_blocks = (t.m + Dot::kRows - 1) / Dot::kRows;
  const size_t depth = std::min(part, t.n_groups - first);
  const size_t steps = (depth + kInt8Ahead - 1) / kInt8Ahead;
  const int8_t* w = t.w + first * kGroupBytes;
  int32_t* so_far = t.so_far;
  for (size_t j = 0; j < t.n; j += kColumns, w += t.n_groups * kGroupBytes) {
    const int8_t* const panel = panel_of(w, depth);
    // Prefetched data, shared out among the blocks, as in gemm_f32.cpp.
    const int8_t* next = t.next_w;
    size_t next_depth = next != nullptr ? part : 0;
    if (j + kColumns < t.n) {
      next = w + t.n_groups * kGroupBytes;
      next_depth = depth;
    } else if (first + depth < t.n_groups) {
      next = t.w + (first + depth) * kGroupBytes;
      next_depth = std::min(part, t.n_groups - first - depth);
    }
    const size_t bytes = next_depth * kGroupBytes;
    for (size_t b = 0; b < n_blocks; ++b) {
      const size_t row = b * Dot::kRows;
      const Int8Part tile = {t.x + row * t.n_groups + first * Dot::kRows,
                             depth,
                             panel,
                             0,
                             t.rows + row,
                             t.steps + j,
                             t.sums + j,
                             t.y + row * t.y_stride + j,
                             t.y_stride,
                             std::min(Dot::kRows, t.m - row),
                             t.accumulate,
                             FetchAhead::share(next, bytes, b, n_blocks, steps),
                             so_far,
                             first == 0,
                             first + depth == t.n_groups};
      int8_any_tile<Dot>(tile, std::min(kColumns, t.n - j),
                         std::make_index_sequence<Dot::kRows / 2>());
      if (so_far != nullptr) so_far += Dot::kRows * kColumns;
    }
  }
}

// The same in parts of k, where there are some blocks.
template <class Dot, class PanelOf>
void int8_parts(const Int8Tile& t, const PanelOf& panel_of) {
  const size_t n_parts = (t.n_groups + Dot::kDepth - 1) / Dot::kDepth;
  const size_t depth = ((t.n_groups + n_parts - 1) / n_parts + 7) / 8 * 8;
  for (size_t first = 0; first < t.n_groups; first += depth) {
    int8_blocks<Dot>(t, first, depth, panel_of);
  }
}

template <class Dot>
void int8_all(const Int8Tile& t) {
  static_assert(kInt8RowsAsTheyAre == 4);
  if (t.as_it_is) switch (t.m) {
      case 1:
        return int8_few<Dot, 1>(t);
      case 2:
        return int8_few<Dot, 2>(t);
      case 3:
        return int8_few<Dot, 3>(t);
      case 4:
        return int8_few<Dot, 4>(t);
      default:
        break;
    }
  const auto as_it_lies = [](const int8_t* at, size_t) { return at; };
  if constexpr (Dot::kDepth != 0) {
    if (t.m > Dot::kRows) return int8_parts<Dot>(t, as_it_lies);
  }
  int8_blocks<Dot>(t, 0, t.n_groups, as_it_lies);
}
