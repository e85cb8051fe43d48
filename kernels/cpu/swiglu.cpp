#include "cpu/swiglu.h"

#include <cmath>

#include "cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/swiglu.cpp"
#include <hwy/foreach_target.h>
// after foreach_target
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace blend::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
HWY_INLINE hn::Vec<D> silu_mul(D d, hn::Vec<D> g, hn::Vec<D> u) {
  // exp() of the library overflows into garbage past 88; there silu is 0 to f32's resolution.
  const auto e = hn::Exp(d, hn::Min(hn::Neg(g), hn::Set(d, 87.0f)));
  return hn::Mul(hn::Div(g, hn::Add(hn::Set(d, 1.0f), e)), u);
}

void Swiglu(const float* gate, const float* up, size_t n, float* out) {
  const hn::CappedTag<float, 16> d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(silu_mul(d, hn::LoadU(d, gate + i), hn::LoadU(d, up + i)), d, out + i);
  }
  const hn::CappedTag<float, 1> d1;
  for (; i < n; ++i) {
    hn::StoreU(silu_mul(d1, hn::LoadU(d1, gate + i), hn::LoadU(d1, up + i)), d1, out + i);
  }
}

}  // namespace blend::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace blend::kernels {

HWY_EXPORT(Swiglu);

void swiglu(const float* gate, const float* up, size_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(Swiglu)(gate, up, n, out);
}

void swiglu_ref(const float* gate, const float* up, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) {
    const double g = static_cast<double>(gate[i]);
    out[i] = static_cast<float>(g / (1.0 + std::exp(-g)) * static_cast<double>(up[i]));
  }
}

}  // namespace blend::kernels
#endif  // HWY_ONCE
