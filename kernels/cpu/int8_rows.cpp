#include "cpu/int8_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/int8_rows.cpp"
#include <hwy/foreach_target.h>
// after foreach_target
#include <hwy/highway.h>

#include "cpu/lanes-inl.h"

#ifndef BLEND_KERNELS_INT8_ROWS_ONCE  // shared by all targets
#define BLEND_KERNELS_INT8_ROWS_ONCE
namespace blend::kernels {

// The mapping of x to q: q = round(x * inverse) + row.zero, clamped. lo <= 0 <= hi.
struct Int8Mapping {
  Int8Row row;
  float inverse = 0;
};
inline Int8Mapping map_range(float lo, float hi) {
  const float range = hi - lo;
  // With less, the inverse would overflow; no model has such small values.
  if (range < 1e-30f) return {};
  const float inverse = 255.0f / range;
  return {{range / 255.0f, static_cast<int32_t>(std::nearbyint(-lo * inverse))}, inverse};
}

}  // namespace blend::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace blend::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DI = hn::Rebind<int32_t, D>;
using DB = hn::Rebind<uint8_t, D>;

constexpr size_t kChains = 4;  // parallel sums, as one would wait for itself

// Four vectors' integers as bytes, saturated. Vectors of 512 bits go together: three packings and
// one change of order, where each of them by itself would take four instructions.
HWY_INLINE void store_bytes(const hn::Vec<DI> (&v)[kChains], uint8_t* q) {
#if HWY_TARGET <= HWY_AVX3
  const auto words = [](const auto& a, const auto& b) { return _mm512_packs_epi32(a.raw, b.raw); };
  const __m512i lanes = _mm512_packus_epi16(words(v[0], v[1]), words(v[2], v[3]));
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  _mm512_storeu_si512(q, _mm512_permutexvar_epi32(order, lanes));
#else
  BLEND_UNROLL
  for (size_t c = 0; c < kChains; ++c) hn::StoreU(hn::DemoteTo(DB(), v[c]), DB(), q + c * kLanes);
#endif
}

Int8Row QuantizeRow(const float* x, size_t n, uint8_t* q) {
  const D d;
  const DI di;
  V lows[kChains], highs[kChains], odds[kChains];
  for (size_t c = 0; c < kChains; ++c) lows[c] = highs[c] = odds[c] = hn::Zero(d);
  const auto see = [&](size_t at, size_t c) HWY_ATTR {
    const auto v = hn::LoadU(d, x + at);
    lows[c] = hn::Min(lows[c], v);
    highs[c] = hn::Max(highs[c], v);
    // NaN for NaN and infinity, which Min and Max may lose.
    odds[c] = hn::MulAdd(v, hn::Zero(d), odds[c]);
  };
  size_t i = 0;
  for (; i + kChains * kLanes <= n; i += kChains * kLanes) {
    BLEND_UNROLL
    for (size_t c = 0; c < kChains; ++c) see(i + c * kLanes, c);
  }
  for (; i + kLanes <= n; i += kLanes) see(i, 0);
  const auto lo = hn::Min(hn::Min(lows[0], lows[1]), hn::Min(lows[2], lows[3]));
  const auto hi = hn::Max(hn::Max(highs[0], highs[1]), hn::Max(highs[2], highs[3]));
  const auto odd = hn::Add(hn::Add(odds[0], odds[1]), hn::Add(odds[2], odds[3]));
  float least = hn::GetLane(hn::MinOfLanes(d, lo)), most = hn::GetLane(hn::MaxOfLanes(d, hi));
  float bad = hn::GetLane(hn::SumOfLanes(d, odd));
  for (size_t j = i; j < n; ++j) {
    least = std::min(least, x[j]);
    most = std::max(most, x[j]);
    bad += x[j] * 0.0f;
  }
  if (bad != 0.0f || !(most - least <= std::numeric_limits<float>::max())) {
    std::fill(q, q + n, uint8_t{0});
    return {std::numeric_limits<float>::quiet_NaN(), 0};
  }
  const Int8Mapping map = map_range(least, most);
  const auto inverse = hn::Set(d, map.inverse);
  // For |v| <= 255, v + 1.5 * 2^23 ends in the integer nearest to v, as nearbyint() rounds, in
  // two's complement: half the cost of NearestInt(), which works for every float.
  constexpr float kNearest = 0x1.8p23f;
  const auto nearest = hn::Set(d, kNearest);
  const auto zero = hn::Set(di, map.row.zero - std::bit_cast<int32_t>(kNearest));
  const auto integers = [&](size_t at) HWY_ATTR {
    const auto v = hn::Add(hn::Mul(hn::LoadU(d, x + at), inverse), nearest);
    return hn::Add(hn::BitCast(di, v), zero);
  };
  size_t j = 0;
  for (; j + kChains * kLanes <= n; j += kChains * kLanes) {
    hn::Vec<DI> v[kChains];
    BLEND_UNROLL
    for (size_t c = 0; c < kChains; ++c) {
      __builtin_prefetch(x + n + j + c * kLanes);  // the next row
      v[c] = integers(j + c * kLanes);
    }
    store_bytes(v, q + j);
  }
  for (; j + kLanes <= n; j += kLanes) {
    hn::StoreU(hn::DemoteTo(DB(), integers(j)), DB(), q + j);
  }
  for (; j < n; ++j) {
    const auto v = static_cast<int32_t>(std::nearbyint(x[j] * map.inverse)) + map.row.zero;
    q[j] = static_cast<uint8_t>(std::clamp(v, 0, 255));
  }
  return map.row;
}

}  // namespace blend::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace blend::kernels {

HWY_EXPORT(QuantizeRow);

Int8Row quantize_row(const float* x, size_t n, uint8_t* q) {
  return HWY_DYNAMIC_DISPATCH(QuantizeRow)(x, n, q);
}

Int8Row quantize_row_ref(const float* x, size_t n, uint8_t* q) {
  float lo = 0, hi = 0;
  for (size_t i = 0; i < n; ++i) {
    if (!std::isfinite(x[i])) return {std::numeric_limits<float>::quiet_NaN(), 0};
    lo = std::min(lo, x[i]);
    hi = std::max(hi, x[i]);
  }
  if (hi - lo > std::numeric_limits<float>::max()) {
    return {std::numeric_limits<float>::quiet_NaN(), 0};
  }
  const Int8Mapping map = map_range(lo, hi);
  for (size_t i = 0; i < n; ++i) {
    const auto v = static_cast<int32_t>(std::nearbyint(x[i] * map.inverse)) + map.row.zero;
    q[i] = static_cast<uint8_t>(std::clamp(v, 0, 255));
  }
  return map.row;
}

}  // namespace blend::kernels
#endif  // HWY_ONCE
