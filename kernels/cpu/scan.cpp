#include "cpu/scan.h"

#include <algorithm>
#include <cmath>

#include "cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/scan.cpp"
#include <hwy/foreach_target.h>
// after foreach_target
#include <hwy/highway.h>

#include "cpu/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace blend::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
HWY_INLINE void conv_silu_at(D d, const float* x, const float* taps, const float* bias,
                             size_t stride, size_t n_taps, size_t at, float* out) {
  auto sum = bias == nullptr ? hn::Zero(d) : hn::LoadU(d, bias + at);
  for (size_t j = 0; j < n_taps; ++j) {
    sum = hn::MulAdd(hn::LoadU(d, taps + j * stride + at), hn::LoadU(d, x + j * stride + at), sum);
  }
  // Beyond these the sigmoid is 0 or 1 to f32's resolution; a NaN stays one by the factor.
  const auto z = hn::Max(hn::Min(hn::Neg(sum), hn::Set(d, 87.0f)), hn::Set(d, -86.0f));
  hn::StoreU(hn::Div(sum, hn::Add(hn::Set(d, 1.0f), exp_between(d, z))), d, out + at);
}

void ConvSilu(const float* x, const float* taps, const float* bias, size_t stride, size_t n_taps,
              size_t n, float* out) {
  const hn::CappedTag<float, 16> d;
  const hn::CappedTag<float, 1> d1;
  size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    conv_silu_at(d, x, taps, bias, stride, n_taps, i, out);
  }
  for (; i < n; ++i) conv_silu_at(d1, x, taps, bias, stride, n_taps, i, out);
}

void ToLength(float* x, size_t n, float eps, float scale) {
  const hn::CappedTag<float, 16> d;
  const size_t lanes = hn::Lanes(d);
  auto s0 = hn::Zero(d), s1 = hn::Zero(d);
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const auto a = hn::LoadU(d, x + i), b = hn::LoadU(d, x + i + lanes);
    s0 = hn::MulAdd(a, a, s0);
    s1 = hn::MulAdd(b, b, s1);
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(s0, s1)));
  for (; i < n; ++i) sum += x[i] * x[i];
  const float factor = scale / std::sqrt(sum + eps);
  i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::Mul(hn::LoadU(d, x + i), hn::Set(d, factor)), d, x + i);
  }
  for (; i < n; ++i) x[i] *= factor;
}

constexpr hn::CappedTag<float, kScanTile> kTag;
using Tile = decltype(kTag);
constexpr size_t kLanes = hn::MaxLanes(kTag), kParts = kScanTile / kLanes;
// Sums of neighbouring k hide the latency of the multiply-add, as far as there are registers.
constexpr size_t kSums = kParts == 1 ? 4 : kParts == 2 ? 2 : 1;
struct Sums {
  hn::Vec<Tile> of[kSums][kParts];
  HWY_INLINE void clear() {
    BLEND_UNROLL
    for (size_t u = 0; u < kSums; ++u) {
      BLEND_UNROLL
      for (size_t p = 0; p < kParts; ++p) of[u][p] = hn::Zero(kTag);
    }
  }
  HWY_INLINE void total(float* to) const {
    BLEND_UNROLL
    for (size_t p = 0; p < kParts; ++p) {
      auto sum = of[0][p];
      if constexpr (kSums == 2) sum = hn::Add(sum, of[1][p]);
      if constexpr (kSums == 4) {
        sum = hn::Add(hn::Add(sum, of[1 % kSums][p]), hn::Add(of[2 % kSums][p], of[3 % kSums][p]));
      }
      hn::Store(sum, kTag, to + p * kLanes);
    }
  }
};

// S = decay S + k delta, and the sums q S and next S, of n elements of k.
template <bool kOut, bool kNext, size_t kN>
HWY_INLINE void update(float* state, const float* q, const float* k, const float* next,
                       hn::Vec<Tile> decay, const hn::Vec<Tile> (&delta)[kParts], Sums& out,
                       Sums& read) {
  BLEND_UNROLL
  for (size_t u = 0; u < kN; ++u) {
    const auto vk = hn::Set(kTag, k[u]);
    BLEND_UNROLL
    for (size_t p = 0; p < kParts; ++p) {
      float* const at = state + u * kScanTile + p * kLanes;
      const auto s = hn::MulAdd(vk, delta[p], hn::Mul(hn::Load(kTag, at), decay));
      hn::Store(s, kTag, at);
      if constexpr (kOut) out.of[u][p] = hn::MulAdd(hn::Set(kTag, q[u]), s, out.of[u][p]);
      if constexpr (kNext) read.of[u][p] = hn::MulAdd(hn::Set(kTag, next[u]), s, read.of[u][p]);
    }
  }
}

template <bool kOut, bool kNext>
HWY_INLINE void update_all(float* state, size_t k_dim, const float* q, const float* k,
                           const float* next, float decay, const float* delta, float* out,
                           float* read) {
  Sums outs, reads;
  outs.clear();
  reads.clear();
  const auto vdecay = hn::Set(kTag, decay);
  hn::Vec<Tile> vdelta[kParts];
  BLEND_UNROLL
  for (size_t p = 0; p < kParts; ++p) vdelta[p] = hn::Load(kTag, delta + p * kLanes);
  size_t i = 0;
  for (; i + kSums <= k_dim; i += kSums) {
    update<kOut, kNext, kSums>(state + i * kScanTile, q + i, k + i, next + i, vdecay, vdelta, outs,
                               reads);
  }
  for (; i < k_dim; ++i) {
    update<kOut, kNext, 1>(state + i * kScanTile, q + i, k + i, next + i, vdecay, vdelta, outs,
                           reads);
  }
  if constexpr (kOut) outs.total(out);
  if constexpr (kNext) reads.total(read);
}

// k S, in the order of update()'s sums.
HWY_INLINE void read_state(const float* state, size_t k_dim, const float* k, float* read) {
  Sums sums;
  sums.clear();
  const auto add = [&](size_t i, size_t u) HWY_ATTR {
    BLEND_UNROLL
    for (size_t p = 0; p < kParts; ++p) {
      const auto s = hn::Load(kTag, state + i * kScanTile + p * kLanes);
      sums.of[u][p] = hn::MulAdd(hn::Set(kTag, k[i]), s, sums.of[u][p]);
    }
  };
  size_t i = 0;
  for (; i + kSums <= k_dim; i += kSums) {
    BLEND_UNROLL
    for (size_t u = 0; u < kSums; ++u) add(i + u, u);
  }
  for (; i < k_dim; ++i) add(i, 0);
  sums.total(read);
}

void RunScan(const ScanRows& r, float* state) {
  HWY_ALIGN float read[kScanTile], delta[kScanTile] = {}, out[kScanTile];
  if (r.corrects && r.n > 0) read_state(state, r.k_dim, r.k, read);
  for (size_t t = 0; t < r.n; ++t) {
    const float* const k = r.k + t * r.qk_stride;
    const float* const next = k + r.qk_stride;
    const float* const v = r.v + t * r.v_stride;
    for (size_t c = 0; c < r.columns; ++c) {
      delta[c] = r.beta[t] * (r.corrects ? v[c] - r.decay[t] * read[c] : v[c]);
    }
    float* const to = r.out[t];
    const float* const q = to == nullptr ? k : r.q + t * r.qk_stride;
    const bool more = r.corrects && t + 1 < r.n;
    if (to != nullptr && more) {
      update_all<true, true>(state, r.k_dim, q, k, next, r.decay[t], delta, out, read);
    } else if (to != nullptr) {
      update_all<true, false>(state, r.k_dim, q, k, k, r.decay[t], delta, out, read);
    } else if (more) {
      update_all<false, true>(state, r.k_dim, q, k, next, r.decay[t], delta, out, read);
    } else {
      update_all<false, false>(state, r.k_dim, q, k, k, r.decay[t], delta, out, read);
    }
    if (to != nullptr) std::copy_n(out, r.columns, to + r.out_at);
  }
}

}  // namespace blend::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace blend::kernels {

HWY_EXPORT(ConvSilu);
HWY_EXPORT(ToLength);
HWY_EXPORT(RunScan);

void conv_silu(const float* x, const float* taps, const float* bias, size_t stride, size_t n_taps,
               size_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(ConvSilu)(x, taps, bias, stride, n_taps, n, out);
}

void conv_silu_ref(const float* x, const float* taps, const float* bias, size_t stride,
                   size_t n_taps, size_t n, float* out) {
  for (size_t e = 0; e < n; ++e) {
    double sum = bias == nullptr ? 0 : static_cast<double>(bias[e]);
    for (size_t j = 0; j < n_taps; ++j) {
      sum += static_cast<double>(taps[j * stride + e]) * static_cast<double>(x[j * stride + e]);
    }
    out[e] = static_cast<float>(sum / (1 + std::exp(-sum)));
  }
}

void to_length(float* x, size_t n, float eps, float scale) {
  HWY_DYNAMIC_DISPATCH(ToLength)(x, n, eps, scale);
}

void to_length_ref(float* x, size_t n, float eps, float scale) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  const double factor = static_cast<double>(scale) / std::sqrt(sum + static_cast<double>(eps));
  for (size_t i = 0; i < n; ++i) x[i] = static_cast<float>(static_cast<double>(x[i]) * factor);
}

void scan_rows(const ScanRows& rows, float* state) { HWY_DYNAMIC_DISPATCH(RunScan)(rows, state); }

void scan_rows_ref(const ScanRows& r, float* state) {
  for (size_t t = 0; t < r.n; ++t) {
    const float* const k = r.k + t * r.qk_stride;
    for (size_t c = 0; c < r.columns; ++c) {
      double read = 0, out = 0;
      for (size_t i = 0; i < r.k_dim; ++i) {
        float& s = state[i * kScanTile + c];
        s *= r.decay[t];
        read += static_cast<double>(k[i]) * static_cast<double>(s);
      }
      const double delta = static_cast<double>(r.beta[t]) *
                           (static_cast<double>(r.v[t * r.v_stride + c]) - (r.corrects ? read : 0));
      for (size_t i = 0; i < r.k_dim; ++i) {
        float& s = state[i * kScanTile + c];
        s = static_cast<float>(static_cast<double>(s) + static_cast<double>(k[i]) * delta);
        if (r.out[t] != nullptr) {
          out += static_cast<double>(r.q[t * r.qk_stride + i]) * static_cast<double>(s);
        }
      }
      if (r.out[t] != nullptr) r.out[t][r.out_at + c] = static_cast<float>(out);
    }
  }
}

}  // namespace blend::kernels
#endif  // HWY_ONCE
