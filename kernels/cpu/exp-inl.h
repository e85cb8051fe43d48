// exp of scores that are at most zero, as a softmax needs it.
//
// Included once per SIMD target; see any kernel.
#if defined(BLEND_KERNELS_EXP_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef BLEND_KERNELS_EXP_INL_H
#undef BLEND_KERNELS_EXP_INL_H
#else
#define BLEND_KERNELS_EXP_INL_H
#endif

#include <hwy/highway.h>

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace blend::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// exp(x) for x <= 0 to about 1 ulp; 0 below -87, where f32's normal range ends. NaN stays NaN,
// which Highway's own Exp turns into 0: a poisoned score must not vanish.
template <class D>
HWY_INLINE hn::Vec<D> exp_nonpositive(D d, hn::Vec<D> x) {
  const hn::Rebind<int32_t, D> di;
  const auto q = hn::NearestInt(hn::Mul(x, hn::Set(d, 1.44269504089f)));
  const auto qf = hn::ConvertTo(d, q);
  auto r = hn::MulAdd(qf, hn::Set(d, -0.693359375f), x);  // ln 2 in two parts
  r = hn::MulAdd(qf, hn::Set(d, 2.12194440e-4f), r);
  // Taylor to the 7th power: |r| <= ln(2)/2, the rest is below 6e-9.
  auto p = hn::MulAdd(r, hn::Set(d, 1.0f / 5040), hn::Set(d, 1.0f / 720));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 120));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 24));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 6));
  p = hn::MulAdd(p, r, hn::Set(d, 0.5f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  const auto power = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(q, hn::Set(di, 127))));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.0f)), hn::Mul(p, power));
}

// exp(x) to about 1 ulp, for -86 <= x <= 87: there every step stays among f32's normal numbers, so
// that no case has to be told apart. For any other x, NaN too, some number.
template <class D>
HWY_INLINE hn::Vec<D> exp_between(D d, hn::Vec<D> x) {
  const hn::Rebind<int32_t, D> di;
  // Adding this number leaves no bits for fractions: the sum ends in x / ln 2, rounded.
  const auto room = hn::Set(d, 0x1.8p23f);
  const auto shifted = hn::MulAdd(x, hn::Set(d, 1.44269504089f), room);
  const auto q = hn::Sub(shifted, room);
  auto r = hn::MulAdd(q, hn::Set(d, -0.693359375f), x);  // ln 2 in two parts
  r = hn::MulAdd(q, hn::Set(d, 2.12194440e-4f), r);
  // Fitted for |r| <= ln(2)/2, to 2e-8 of the result.
  auto p = hn::MulAdd(r, hn::Set(d, 1.3843606e-3f), hn::Set(d, 8.3741955e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.1668005e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.1666643f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.49999994f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  // Times 2^q: the other bits of `shifted` are shifted out at the top.
  return hn::BitCast(d, hn::Add(hn::BitCast(di, p), hn::ShiftLeft<23>(hn::BitCast(di, shifted))));
}

// cap * tanh(x / cap), to cap * 1e-7; NaN stays NaN.
template <class D>
HWY_INLINE hn::Vec<D> soft_cap(D d, hn::Vec<D> x, float cap) {
  const auto e = exp_nonpositive(d, hn::Mul(hn::Abs(x), hn::Set(d, -2.0f / cap)));
  const auto one = hn::Set(d, 1.0f);
  return hn::CopySign(hn::Mul(hn::Set(d, cap), hn::Div(hn::Sub(one, e), hn::Add(one, e))), x);
}

}  // namespace blend::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
