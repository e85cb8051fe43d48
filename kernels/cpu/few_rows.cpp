#include "cpu/few_rows.h"

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>
#include <vector>

#include "cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/few_rows.cpp"
#include <hwy/foreach_target.h>
// after foreach_target
#include <hwy/highway.h>

#include "cpu/few_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace blend::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// With more rows of x, some rows of W are read a part of k at a time, once for each group of rows
// of x, whose part stays in the first-level cache meanwhile. The part is as long as possible: for
// every one the sums begin and end in memory (one Zen 3 core, 16 rows, k = 2048 of f16: 512
// elements 60, 1024 72 GFLOP/s). The next rows of W are prefetched meanwhile, in the order in which
// they are stored: prefetched in the order of use, a piece of one row and then of another,
// they came no faster than without prefetching (8 rows of x: 5.9 ms, in order 4.0).
constexpr size_t kGroup = kFewRowsStep;
constexpr size_t kBytesOfX = 24 << 10, kPartUnit = 256;  // of a part; elements of k
// Share of a second-level cache of 512 KiB for groups of W and x.
constexpr size_t kBytesOfCache = 384 << 10;

// The rows of W that are read together: fewer where they, the prefetched ones and all of x would
// not stay in the second-level cache together. If x alone does not, each group loads it again.
HWY_INLINE size_t rows_of_group(size_t row_bytes, size_t x_bytes) {
  constexpr size_t kLeast = 4;
  if (x_bytes >= kBytesOfCache) return kGroup;
  return std::clamp((kBytesOfCache - x_bytes) / (2 * row_bytes) / kLeast * kLeast, kLeast, kGroup);
}

// The part's sums continue those of the parts before it, `kept`, and end there or in y.
template <class Weights, size_t kW, size_t kX>
void multiply(const FewRows& p, const Part& part, size_t i, float* kept) {
  Sums<kW, kX> sums;
  if (part.first != 0) sums.load(kept);
  Weights::add(p, part, sums);
  if (part.last != p.k) {
    sums.store(kept);
    return;
  }
  float totals[kX][4];
  sums.totals(totals);
  Weights::template add_rest<kW, kX>(p, part, totals);
  float* y = p.y + i * p.y_stride + part.j;
  for (size_t n = 0; n < kX; ++n, y += p.y_stride) {
    for (size_t r = 0; r < kW; ++r) {
      float sum = totals[n][r];
      if (p.steps != nullptr) sum *= p.steps[part.j + r];
      y[r] = p.accumulate ? y[r] + sum : sum;
    }
  }
}

// Rows of W up to this length, in bytes, are prefetched in the order in which they lie: each is too
// short for the hardware to detect its pattern. Longer ones are prefetched side by side. (One Zen 4
// core with AVX-512, one row of x, Q8_0 from memory, GFLOP/s side by side and in order: k = 640 16
// and 36, 2048 24 and 35, 3072 28 and 28, 4096 29 and 23.)
constexpr size_t kShort = 2560;
// Distance from rows of W to those to prefetch, whole groups of them.
size_t prefetch_distance(size_t row_bytes, size_t group, bool in_order) {
  // Memory's latency is the time in which a core uses some kilobytes.
  const size_t least = in_order ? 4 << 10 : 12 << 10;
  return (least / (group * row_bytes) + 1) * group * row_bytes;
}
// For two rows in order: the second one's first bytes are prefetched half a pair before they are
// read.
size_t prefetch_distance_of_two(size_t row_bytes) {
  constexpr size_t kLeast = 8 << 10, kMore = 4 << 10;
  return std::max(kLeast, row_bytes + kMore);
}

// Rows of W from part.j to `end`, kRowsOfW at a time, times kX rows of x, of which i is the first.
// kept: their sums, [end - j][kX][kLanes]
template <class Weights, size_t kRowsOfW, size_t kX>
void some_of_w(const FewRows& p, Part part, size_t end, size_t i, float* kept) {
  for (; part.j + kRowsOfW <= end; part.j += kRowsOfW, kept += kRowsOfW * kX * kLanes) {
    multiply<Weights, kRowsOfW, kX>(p, part, i, kept);
  }
  for (; part.j < end; ++part.j, kept += kX * kLanes) multiply<Weights, 1, kX>(p, part, i, kept);
}

template <class Weights, size_t... kLess>
void some_of_x(const FewRows& p, const Part& part, size_t end, size_t i, size_t n, float* kept,
               std::index_sequence<kLess...>) {
  using Some = void (*)(const FewRows&, Part, size_t, size_t, float*);
  constexpr std::array<Some, sizeof...(kLess)> kSome = {&some_of_w<Weights, kWRows, kLess + 1>...};
  kSome[n - 1](p, part, end, i, kept);
}

// One row of x or two, unpacked: all of a row of W at a time.
template <class Weights, size_t kX, size_t kRowsOfW>
void rows_at_once(const FewRows& p) {
  const size_t bytes = Weights::row_bytes(p, p.k);
  const bool two = kRowsOfW < kMostW;
  FetchAhead none;
  Part part = {p.x, 0, 0, p.k, &none};
  // AnyBlocks are bound by unpacking.
  part.in_order = two || (bytes <= kShort && !std::is_same_v<Weights, AnyBlocks>);
  part.ahead =
      two ? prefetch_distance_of_two(bytes) : prefetch_distance(bytes, kRowsOfW, part.in_order);
  some_of_w<Weights, kRowsOfW, kX>(p, part, p.n, 0, nullptr);
}
template <class Weights, size_t kX>
void one_or_two(const FewRows& p) {
  if (Weights::row_bytes(p, p.k) <= kShort) {
    return rows_at_once<Weights, kX, kShortRows<Weights, kX>>(p);
  }
  rows_at_once<Weights, kX, kLongRows<Weights, kX>>(p);
}

template <class Weights>
void all_rows(const FewRows& p) {
  if (p.m == 1) return one_or_two<Weights, 1>(p);
  if (p.m == 2) return one_or_two<Weights, 2>(p);
  HWY_ALIGN float sums[kGroup * kFewRowsMost * kLanes];
  const size_t bytes = Weights::row_bytes(p, p.k), padded = few_rows_padded(p.k);
  const RowGroups groups(p.m, kMostX);
  const size_t group = rows_of_group(bytes, p.m * p.k * sizeof(float));
  const size_t row_part = groups.rows(0) * kPartUnit * sizeof(float);
  const size_t depth = std::max<size_t>(1, kBytesOfX / row_part) * kPartUnit;
  for (size_t j = 0; j < p.n; j += group) {
    const size_t end = std::min(p.n, j + group);
    // The bytes after the last group belong to the next piece.
    const auto* const next = reinterpret_cast<const char*>(p.w) + (j + group) * bytes;
    FetchAhead fetch = {next, next + group * bytes, std::max<size_t>(1, kWRows / groups.n) * 64};
    for (size_t first = 0; first < p.k; first += depth) {
      for (size_t g = 0; g < groups.n; ++g) {
        const size_t i = groups.first(g);
        const Part part = {p.x + i * padded, j, first, std::min(p.k, first + depth), &fetch};
        some_of_x<Weights>(p, part, end, i, groups.rows(g), sums + kGroup * i * kLanes,
                           std::make_index_sequence<kMostX>());
      }
    }
  }
}

void Pack(const float* x, size_t m, size_t k, size_t group, size_t n_groups, float* packed) {
  const size_t padded = few_rows_padded(k);
  const RowGroups groups(m, kMostX);
  for (size_t g = group; g < group + n_groups; ++g) {
    const size_t first = groups.first(g), n = groups.rows(g);
    for (size_t r = 0; r < n; ++r) {
      const float* const row = x + (first + r) * k;
      float* const to = packed + first * padded + r * kLanes;
      size_t e = 0;
      for (; e + kLanes <= k; e += kLanes) hn::StoreU(hn::LoadU(D(), row + e), D(), to + e * n);
      for (size_t c = e; c < k; ++c) to[e * n + (c - e)] = row[c];
    }
  }
}

size_t MostX() { return kMostX; }

// One core, GFLOP/s here and by panels. A Zen 5 with AVX-512, k = 2048, 32 and 48 rows: Q4_1 169
// and about 145, 173 and 164; Q5_0 163 and 139, 165 and 165; Q6_K 163 and 134, 165 and 158; but
// Q3_K 131 and 143, f32 110 and 120. A Zen 4 with AVX2, k = 576 and 1536: 48 rows of f16 82 and 77,
// 25 of Q4_0 64 and 69.
size_t Most(DType dtype, BlockType blocks, size_t k) {
  constexpr size_t kNearPeak = kFewRowsMost, kSomeUnpacking = 40;
  size_t most = kFewRowsAlways;
  if (blocks == BlockType::none) {
    if (dtype != DType::f32) most = kNearPeak;
  } else if (kLanes == 16 && blocks != BlockType::q3_k) {
    most = kSomeUnpacking;
  }
  return std::clamp(kBytesOfCache / (k * sizeof(float)), kFewRowsAlways, most);
}

void Product(const FewRows& p) {
  if (p.steps != nullptr) return all_rows<Plain<Integers>>(p);
  if (p.blocks == BlockType::none) {
    if (p.dtype == DType::f32) return all_rows<Plain<Floats<DType::f32>>>(p);
    if (p.dtype == DType::f16) return all_rows<Plain<Floats<DType::f16>>>(p);
    return all_rows<Plain<Floats<DType::bf16>>>(p);
  }
  if (with_vector_codes(
          p.blocks, [&](auto codes) { all_rows<typename BestFor<decltype(codes)>::Type>(p); })) {
    return;
  }
  all_rows<AnyBlocks>(p);
}

}  // namespace blend::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace blend::kernels {

HWY_EXPORT(Product);
HWY_EXPORT(Pack);
HWY_EXPORT(MostX);
HWY_EXPORT(Most);

void few_rows(const FewRows& product) { HWY_DYNAMIC_DISPATCH(Product)(product); }
size_t few_rows_most(DType dtype, BlockType blocks, size_t k) {
  return HWY_DYNAMIC_DISPATCH(Most)(dtype, blocks, k);
}
RowGroups few_rows_groups(size_t m) { return {m, HWY_DYNAMIC_DISPATCH(MostX)()}; }
void few_rows_pack(const float* x, size_t m, size_t k, size_t group, size_t n_groups,
                   float* packed) {
  HWY_DYNAMIC_DISPATCH(Pack)(x, m, k, group, n_groups, packed);
}

void few_rows_ref(const FewRows& p) {
  const size_t bytes = p.steps != nullptr ? p.k : weight_row_bytes(p.dtype, p.blocks, p.k);
  std::vector<float> row(p.k);
  for (size_t j = 0; j < p.n; ++j) {
    const std::byte* const w = p.w + j * bytes;
    if (p.steps == nullptr) {
      decode_weights(p.dtype, p.blocks, w, p.k, row.data());
    } else {
      for (size_t e = 0; e < p.k; ++e) row[e] = static_cast<int8_t>(w[e]) * p.steps[j];
    }
    for (size_t i = 0; i < p.m; ++i) {
      float& y = p.y[i * p.y_stride + j];
      double sum = p.accumulate ? static_cast<double>(y) : 0;
      for (size_t e = 0; e < p.k; ++e) {
        sum += static_cast<double>(p.x[i * p.k + e]) * static_cast<double>(row[e]);
      }
      y = static_cast<float>(sum);
    }
  }
}

}  // namespace blend::kernels
#endif  // HWY_ONCE
