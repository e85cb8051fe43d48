#include "cpu/deviation.h"

#include <cmath>

#include "cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/deviation.cpp"
#include <hwy/foreach_target.h>
// after foreach_target
#include <hwy/highway.h>

#include "cpu/convert.h"
#include "cpu/half-inl.h"

HWY_BEFORE_NAMESPACE();
namespace blend::kernels::HWY_NAMESPACE {

// sum = sum + x^2, or + |x|
template <Norm kNorm, class D>
HWY_INLINE hn::Vec<D> add_to(D /*d*/, hn::Vec<D> sum, hn::Vec<D> x) {
  if constexpr (kNorm == Norm::squares) return hn::MulAdd(x, x, sum);
  return hn::Add(sum, hn::Abs(x));
}

// kFresh: fresh - stored; otherwise the stored row alone, and `fresh` is not read.
template <DType kType, Norm kNorm, bool kFresh>
float distance_as(const float* fresh, const std::byte* stored, size_t n) {
  const hn::CappedTag<float, 16> d;
  const size_t lanes = hn::Lanes(d);
  constexpr size_t kSize = kType == DType::f32 ? 4 : 2;
  const auto difference = [&](size_t i) {
    const auto s = load_f32<kType>(d, stored + i * kSize);
    if constexpr (kFresh) return hn::Sub(hn::LoadU(d, fresh + i), s);
    return s;
  };
  auto s0 = hn::Zero(d), s1 = hn::Zero(d);
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    s0 = add_to<kNorm>(d, s0, difference(i));
    s1 = add_to<kNorm>(d, s1, difference(i + lanes));
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(s0, s1)));
  for (; i < n; ++i) {
    const float s = load_f32_scalar<kType>(stored + i * kSize);
    const float diff = kFresh ? fresh[i] - s : s;
    sum += kNorm == Norm::squares ? diff * diff : std::abs(diff);
  }
  return sum;
}

template <Norm kNorm, bool kFresh>
float distance_of(const float* fresh, const std::byte* stored, DType dtype, size_t n) {
  switch (dtype) {
    case DType::f16:
      return distance_as<DType::f16, kNorm, kFresh>(fresh, stored, n);
    case DType::bf16:
      return distance_as<DType::bf16, kNorm, kFresh>(fresh, stored, n);
    case DType::f32:
      break;
  }
  return distance_as<DType::f32, kNorm, kFresh>(fresh, stored, n);
}

// fresh null: the stored row's own size.
float RowDistance(const float* fresh, const std::byte* stored, DType dtype, size_t n, Norm norm) {
  if (norm == Norm::squares) {
    return fresh != nullptr ? distance_of<Norm::squares, true>(fresh, stored, dtype, n)
                            : distance_of<Norm::squares, false>(fresh, stored, dtype, n);
  }
  return fresh != nullptr ? distance_of<Norm::magnitudes, true>(fresh, stored, dtype, n)
                          : distance_of<Norm::magnitudes, false>(fresh, stored, dtype, n);
}

}  // namespace blend::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace blend::kernels {

HWY_EXPORT(RowDistance);

float row_distance(const float* fresh, const std::byte* stored, DType dtype, size_t n, Norm norm) {
  return HWY_DYNAMIC_DISPATCH(RowDistance)(fresh, stored, dtype, n, norm);
}

float row_size(const std::byte* stored, DType dtype, size_t n, Norm norm) {
  return HWY_DYNAMIC_DISPATCH(RowDistance)(nullptr, stored, dtype, n, norm);
}

float row_distance_ref(const float* fresh, const std::byte* stored, DType dtype, size_t n,
                       Norm norm) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i) {
    float s;
    decode_ref(stored + i * static_cast<size_t>(dtype_size(dtype)), dtype, 1, &s);
    const double diff = static_cast<double>(fresh[i]) - static_cast<double>(s);
    sum += norm == Norm::squares ? diff * diff : std::abs(diff);
  }
  return static_cast<float>(sum);
}

float row_size_ref(const std::byte* stored, DType dtype, size_t n, Norm norm) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i) {
    float s;
    decode_ref(stored + i * static_cast<size_t>(dtype_size(dtype)), dtype, 1, &s);
    const auto x = static_cast<double>(s);
    sum += norm == Norm::squares ? x * x : std::abs(x);
  }
  return static_cast<float>(sum);
}

}  // namespace blend::kernels
#endif  // HWY_ONCE
