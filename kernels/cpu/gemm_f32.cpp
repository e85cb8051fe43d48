#include "cpu/gemm_f32.h"

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>
#include <vector>

#include "cpu/fetch_ahead.h"
#include "cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/gemm_f32.cpp"
#include <hwy/foreach_target.h>
// after foreach_target
#include <hwy/highway.h>

#include "cpu/half-inl.h"
#include "cpu/kv_layout.h"
#include "cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace blend::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kVectors = 2;  // of a panel's row
constexpr size_t kColumns = kVectors * kLanes;
// As many sums as there are registers for, besides a panel's row and a broadcast.
constexpr size_t kRows = kLanes == 16 ? 14 : kLanes == 8 ? 6 : HWY_ARCH_ARM_A64 ? 12 : 4;
constexpr size_t kSums = kRows * kVectors;

// Elements of k between two rounds of prefetching.
constexpr size_t kAheadDepth = 8;

// One part of the depth. x: element e of row i is at x[e * kStep + i], or, where kStep is 0, at
// x[i * k + e]. w: kPanels panels, `panel` elements apart.
template <DType kType>
struct Part {
  const float* x;
  size_t k;
  const Cached<kType>* w;
  size_t panel;
  size_t depth;
  float* y;
  size_t y_stride;
  size_t n_rows;  // rows of y to be written: the tile's, or one less
  bool add;       // to what is at `before`, which is y or the sums so far
  FetchAhead ahead;
  const float* before;
  size_t before_stride;
  const float* fetch;  // the tile in y, where this part reads or writes it
  size_t fetch_stride;
  float* keep = nullptr;  // where kKeep: the panel's part as f32
};

// In every lane, element i of four; i is a constant where loops are unrolled.
HWY_INLINE V one_of_four(V v, size_t i) {
#if HWY_ARCH_ARM_A64 && HWY_TARGET != HWY_SCALAR
  switch (i) {
    case 0:
      return hn::Broadcast<0>(v);
    case 1:
      return hn::Broadcast<1>(v);
    case 2:
      return hn::Broadcast<2>(v);
    default:
      return hn::Broadcast<3>(v);
  }
#else
  (void)i;
  return v;
#endif
}

template <size_t kTileRows, size_t kPanels, size_t kStep, bool kKeep = false, DType kType>
HWY_INLINE void register_tile(Part<kType> p) {
  static_assert(!kKeep || kPanels == 1);
  constexpr size_t kWide = kPanels * kVectors;
  const D d;
  const float* HWY_RESTRICT x = p.x;
  const Cached<kType>* HWY_RESTRICT w = p.w;
  V sum[kTileRows][kWide];
  BLEND_UNROLL
  for (size_t i = 0; i < kTileRows; ++i) {
    BLEND_UNROLL
    for (size_t v = 0; v < kWide; ++v) sum[i][v] = hn::Zero(d);
  }
  if (p.fetch != nullptr) {
    BLEND_UNROLL
    for (size_t i = 0; i < kTileRows; ++i) {
      BLEND_UNROLL
      for (size_t v = 0; v < kWide * kLanes; v += 16) {
        fetch_result(p.fetch + i * p.fetch_stride + v);
      }
    }
  }
  for (size_t begin = 0; begin < p.depth; begin += kAheadDepth) {
    p.ahead.some_lines();
    const size_t end = std::min(begin + kAheadDepth, p.depth);
#pragma GCC unroll 4
    for (size_t e = begin; e < end; ++e) {
      V row[kWide];
      BLEND_UNROLL
      for (size_t v = 0; v < kWide; ++v) {
        row[v] = load_cached<kType>(
            d, w + v / kVectors * p.panel + e * kColumns + v % kVectors * kLanes);
        if constexpr (kKeep) hn::Store(row[v], d, p.keep + e * kColumns + v * kLanes);
      }
      if constexpr (HWY_ARCH_ARM_A64 && kLanes == 4 && kStep != 0) {
        // Arm multiplies by one element of a register. Loaded one by one, as compilers do it before
        // the first is used, twelve rows' take twelve registers and the sums go to the stack.
        static_assert(kStep % 4 == 0);
        V four[(kTileRows + 3) / 4];
        BLEND_UNROLL
        for (size_t i = 0; i < kTileRows; i += 4) four[i / 4] = hn::LoadU(d, x + e * kStep + i);
        BLEND_UNROLL
        for (size_t i = 0; i < kTileRows; ++i) {
          const V xi = one_of_four(four[i / 4], i % 4);
          BLEND_UNROLL
          for (size_t v = 0; v < kWide; ++v) sum[i][v] = hn::MulAdd(xi, row[v], sum[i][v]);
        }
      } else {
        BLEND_UNROLL
        for (size_t i = 0; i < kTileRows; ++i) {
          const V xi = hn::Set(d, kStep != 0 ? x[e * kStep + i] : x[i * p.k + e]);
          BLEND_UNROLL
          for (size_t v = 0; v < kWide; ++v) sum[i][v] = hn::MulAdd(xi, row[v], sum[i][v]);
        }
      }
    }
  }
  BLEND_UNROLL
  for (size_t i = 0; i < kTileRows; ++i) {
    if (i + 1 == kTileRows && i == p.n_rows) break;
    BLEND_UNROLL
    for (size_t v = 0; v < kWide; ++v) {
      const float* const before = p.before + i * p.before_stride + v * kLanes;
      hn::StoreU(p.add ? hn::Add(hn::LoadU(d, before), sum[i][v]) : sum[i][v], d,
                 p.y + i * p.y_stride + v * kLanes);
    }
  }
}

// A register tile of a panel in which W ends.
template <size_t kTileRows, size_t kStep, DType kType>
void narrow_tile(Part<kType> p, size_t n_columns) {
  HWY_ALIGN float y[kTileRows * kColumns];
  Part<kType> wide = p;
  wide.y = y;
  wide.y_stride = kColumns;
  wide.add = false;
  register_tile<kTileRows, 1, kStep>(wide);
  for (size_t i = 0; i < p.n_rows; ++i) {
    for (size_t j = 0; j < n_columns; ++j) {
      float& to = p.y[i * p.y_stride + j];
      to = p.add ? to + y[i * kColumns + j] : y[i * kColumns + j];
    }
  }
}

template <size_t kTileRows, size_t kStep, DType kType>
void tile_of(const Part<kType>& p, size_t n_columns) {
  if (n_columns >= kColumns) {
    register_tile<kTileRows, 1, kStep>(p);
  } else {
    narrow_tile<kTileRows, kStep>(p, n_columns);
  }
}

// Indexed by half the number of rows, rounded up: tiles are compiled for even ones.
template <DType kType, size_t... kHalf>
HWY_INLINE void any_tile(const Part<kType>& p, size_t n_columns, std::index_sequence<kHalf...>) {
  using Tile = void (*)(const Part<kType>&, size_t);
  constexpr std::array<Tile, sizeof...(kHalf)> kTiles = {&tile_of<2 * kHalf + 2, kRows, kType>...};
  kTiles[(p.n_rows - 1) / 2](p, n_columns);
}

// All blocks of x times the panels' part [first, first + depth) of k.
template <DType kType>
void all_blocks(const GemmTile& t, size_t first, size_t depth) {
  using Element = Cached<kType>;
  const size_t n_blocks = (t.m + kRows - 1) / kRows;
  const auto* w = static_cast<const Element*>(t.w) + first * kColumns;
  for (size_t j = 0; j < t.n; j += kColumns, w += t.k * kColumns) {
    const size_t n_columns = std::min(kColumns, t.n - j);
    // Prefetched data, shared out among the blocks: the next panel's part, the first panel's next
    // part, or the begin of the next tile.
    const auto* next = static_cast<const Element*>(t.next_w);
    size_t next_depth = next != nullptr ? gemm_depth(t.k) : 0;
    if (j + kColumns < t.n) {
      next = w + t.k * kColumns;
      next_depth = depth;
    } else if (first + depth < t.k) {
      next = static_cast<const Element*>(t.w) + (first + depth) * kColumns;
      next_depth = std::min(depth, t.k - first - depth);
    }
    const size_t bytes = next_depth * kColumns * sizeof(Element);
    const size_t steps = (depth + kAheadDepth - 1) / kAheadDepth;
    const bool is_first = first == 0, is_last = first + depth == t.k;
    const bool keeps_sums = t.sums != nullptr && n_columns == kColumns;
    const auto part = [&]<DType kAs>(const Cached<kAs>* panel, size_t b) HWY_ATTR {
      float* const y = t.y + b * kRows * t.y_stride + j;
      Part<kAs> p{t.x + (b * t.k + first) * kRows,
                  t.k,
                  panel,
                  0,
                  depth,
                  y,
                  t.y_stride,
                  std::min(kRows, t.m - b * kRows),
                  t.accumulate || !is_first,
                  FetchAhead::share(next, bytes, b, n_blocks, steps),
                  y,
                  t.y_stride,
                  y,
                  t.y_stride,
                  t.scratch};
      if (keeps_sums) {
        float* const sums = t.sums + (j / kColumns * n_blocks + b) * kRows * kColumns;
        if (!is_first) p.before = sums, p.before_stride = kColumns;
        if (!is_last) p.y = sums, p.y_stride = kColumns;
        if (!is_last && !(is_first && t.accumulate)) p.fetch = nullptr;
      }
      return p;
    };
    const auto block = [&]<DType kAs>(const Cached<kAs>* panel, size_t b) HWY_ATTR {
      any_tile(part.template operator()<kAs>(panel, b), n_columns,
               std::make_index_sequence<kRows / 2>());
    };
    if constexpr (kType == DType::f32) {
      for (size_t b = 0; b < n_blocks; ++b) block.template operator()<kType>(w, b);
    } else if (n_blocks == 1) {
      block.template operator()<kType>(w, 0);
    } else {
      // The first block's tile leaves the panel's part as f32 for the others, while it waits for
      // its multiply-adds anyway.
      size_t b = 0;
      if (n_columns == kColumns) {
        register_tile<kRows, 1, kRows, true>(part.template operator()<kType>(w, b++));
      } else {
        const D d;
        for (size_t e = 0; e < depth * kColumns; e += kLanes) {
          hn::Store(load_cached<kType>(d, w + e), d, t.scratch + e);
        }
      }
      for (; b < n_blocks; ++b) block.template operator()<DType::f32>(t.scratch, b);
    }
  }
}

// kTileRows rows of x, not in blocks. Some panels go side by side, so that there are enough sums to
// hide the latency of a multiply-add, and enough reads to hide memory's.
template <size_t kTileRows, DType kType>
void few(const GemmTile& t) {
  constexpr size_t kAtOnce =
      std::min<size_t>(4, std::max<size_t>(1, kSums / 2 / kVectors / kTileRows));
  const size_t panel = t.k * kColumns, depth = gemm_depth(t.k);
  const auto* w = static_cast<const Cached<kType>*>(t.w);
  size_t j = 0;
  const auto parts = [&](auto product) HWY_ATTR {
    for (size_t first = 0; first < t.k; first += depth) {
      product(Part<kType>{t.x + first,
                          t.k,
                          w + j * t.k + first * kColumns,
                          panel,
                          std::min(depth, t.k - first),
                          t.y + j,
                          t.y_stride,
                          kTileRows,
                          t.accumulate || first != 0,
                          {},
                          t.y + j,
                          t.y_stride,
                          t.y + j,
                          t.y_stride});
    }
  };
  for (; j + kAtOnce * kColumns <= t.n; j += kAtOnce * kColumns) {
    parts([](const Part<kType>& p) HWY_ATTR { register_tile<kTileRows, kAtOnce, 0>(p); });
  }
  for (; j < t.n; j += kColumns) {
    parts([&](const Part<kType>& p)
              HWY_ATTR { tile_of<kTileRows, 0>(p, std::min(kColumns, t.n - j)); });
  }
}

template <DType kType>
void tile_as(const GemmTile& t) {
  static_assert(kRowsAsTheyAre == 4);
  if (t.as_it_is) switch (t.m) {
      case 1:
        return few<1, kType>(t);
      case 2:
        return few<2, kType>(t);
      case 3:
        return few<3, kType>(t);
      case 4:
        return few<4, kType>(t);
      default:
        break;
    }
  const size_t depth = gemm_depth(t.k);
  for (size_t first = 0; first < t.k; first += depth) {
    all_blocks<kType>(t, first, std::min(depth, t.k - first));
  }
}

void Tile(const GemmTile& t) {
  with_cached(t.dtype, [&](auto type) { tile_as<decltype(type)::value>(t); });
}
size_t Rows() { return kRows; }
size_t Columns() { return kColumns; }
bool WidensF16() { return HWY_TARGET <= HWY_AVX2 || HWY_ARCH_ARM_A64; }

}  // namespace blend::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace blend::kernels {

HWY_EXPORT(Tile);
HWY_EXPORT(Rows);
HWY_EXPORT(Columns);
HWY_EXPORT(WidensF16);

GemmShape gemm_shape() { return {HWY_DYNAMIC_DISPATCH(Rows)(), HWY_DYNAMIC_DISPATCH(Columns)()}; }

bool gemm_widens_f16() { return HWY_DYNAMIC_DISPATCH(WidensF16)(); }

void gemm_tile(const GemmTile& tile) {
  if (tile.m != 0 && tile.n != 0) HWY_DYNAMIC_DISPATCH(Tile)(tile);
}

void gemm_tile_ref(const GemmTile& t) {
  const GemmShape shape = gemm_shape();
  const auto x = [&](size_t i, size_t e) {
    if (t.as_it_is) return t.x[i * t.k + e];
    return t.x[(i / shape.rows * t.k + e) * shape.rows + i % shape.rows];
  };
  for (size_t j = 0; j < t.n; ++j) {
    const size_t panel = j / shape.columns * t.k * shape.columns + j % shape.columns;
    for (size_t i = 0; i < t.m; ++i) {
      float& y = t.y[i * t.y_stride + j];
      double sum = t.accumulate ? static_cast<double>(y) : 0;
      for (size_t e = 0; e < t.k; ++e) {
        sum += static_cast<double>(x(i, e)) *
               static_cast<double>(cached_value(t.w, t.dtype, panel + e * shape.columns));
      }
      y = static_cast<float>(sum);
    }
  }
}

}  // namespace blend::kernels
#endif  // HWY_ONCE
