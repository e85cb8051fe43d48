#include "cpu/rope.h"

#include "cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/rope.cpp"
#include <hwy/foreach_target.h>
// after foreach_target
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace blend::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
HWY_INLINE void rotate(hn::Vec<D> a, hn::Vec<D> b, D d, const float* cos, const float* sin,
                       hn::Vec<D>& x, hn::Vec<D>& y) {
  const auto c = hn::LoadU(d, cos), s = hn::LoadU(d, sin);
  x = hn::Sub(hn::Mul(a, c), hn::Mul(b, s));
  y = hn::MulAdd(a, s, hn::Mul(b, c));
}

void Rope(const RopeRow& row, float* x) {
  const hn::CappedTag<float, 16> d;
  const size_t lanes = hn::Lanes(d);
  const size_t half = row.rotary_dim / 2;
  for (size_t h = 0; h < row.n_heads; ++h, x += row.head_dim) {
    size_t i = 0;
    if (row.pairs == RopePairs::halves) {
      for (; i + lanes <= half; i += lanes) {
        hn::Vec<decltype(d)> a, b;
        rotate(hn::LoadU(d, x + i), hn::LoadU(d, x + half + i), d, row.cos + i, row.sin + i, a, b);
        hn::StoreU(a, d, x + i);
        hn::StoreU(b, d, x + half + i);
      }
      for (; i < half; ++i) {
        const float a = x[i], b = x[half + i];
        x[i] = a * row.cos[i] - b * row.sin[i];
        x[half + i] = a * row.sin[i] + b * row.cos[i];
      }
    } else {
      for (; i + lanes <= half; i += lanes) {
        hn::Vec<decltype(d)> even, odd, a, b;
        hn::LoadInterleaved2(d, x + 2 * i, even, odd);
        rotate(even, odd, d, row.cos + i, row.sin + i, a, b);
        hn::StoreInterleaved2(a, b, d, x + 2 * i);
      }
      for (; i < half; ++i) {
        const float a = x[2 * i], b = x[2 * i + 1];
        x[2 * i] = a * row.cos[i] - b * row.sin[i];
        x[2 * i + 1] = a * row.sin[i] + b * row.cos[i];
      }
    }
  }
}

}  // namespace blend::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace blend::kernels {

HWY_EXPORT(Rope);

void rope(const RopeRow& row, float* x) { HWY_DYNAMIC_DISPATCH(Rope)(row, x); }

void rope_ref(const RopeRow& row, float* x) {
  const size_t half = row.rotary_dim / 2;
  for (size_t h = 0; h < row.n_heads; ++h, x += row.head_dim) {
    for (size_t i = 0; i < half; ++i) {
      const size_t first = row.pairs == RopePairs::halves ? i : 2 * i;
      const size_t second = row.pairs == RopePairs::halves ? i + half : 2 * i + 1;
      const double a = static_cast<double>(x[first]), b = static_cast<double>(x[second]);
      const double c = static_cast<double>(row.cos[i]), s = static_cast<double>(row.sin[i]);
      x[first] = static_cast<float>(a * c - b * s);
      x[second] = static_cast<float>(a * s + b * c);
    }
  }
}

}  // namespace blend::kernels
#endif  // HWY_ONCE
