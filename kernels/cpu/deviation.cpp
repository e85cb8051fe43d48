#include "cpu/deviation.h"

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

template <DType kType>
float squared_distance_as(const float* fresh, const std::byte* stored, size_t n) {
  const hn::CappedTag<float, 16> d;
  const size_t lanes = hn::Lanes(d);
  constexpr size_t kSize = kType == DType::f32 ? 4 : 2;
  auto s0 = hn::Zero(d), s1 = hn::Zero(d);
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const auto a = hn::Sub(hn::LoadU(d, fresh + i), load_f32<kType>(d, stored + i * kSize));
    const auto b =
        hn::Sub(hn::LoadU(d, fresh + i + lanes), load_f32<kType>(d, stored + (i + lanes) * kSize));
    s0 = hn::MulAdd(a, a, s0);
    s1 = hn::MulAdd(b, b, s1);
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(s0, s1)));
  for (; i < n; ++i) {
    const float diff = fresh[i] - load_f32_scalar<kType>(stored + i * kSize);
    sum += diff * diff;
  }
  return sum;
}

float SquaredDistance(const float* fresh, const std::byte* stored, DType dtype, size_t n) {
  switch (dtype) {
    case DType::f16:
      return squared_distance_as<DType::f16>(fresh, stored, n);
    case DType::bf16:
      return squared_distance_as<DType::bf16>(fresh, stored, n);
    case DType::f32:
      break;
  }
  return squared_distance_as<DType::f32>(fresh, stored, n);
}

}  // namespace blend::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace blend::kernels {

HWY_EXPORT(SquaredDistance);

float squared_distance(const float* fresh, const std::byte* stored, DType dtype, size_t n) {
  return HWY_DYNAMIC_DISPATCH(SquaredDistance)(fresh, stored, dtype, n);
}

float squared_distance_ref(const float* fresh, const std::byte* stored, DType dtype, size_t n) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i) {
    float s;
    decode_ref(stored + i * static_cast<size_t>(dtype_size(dtype)), dtype, 1, &s);
    const double diff = static_cast<double>(fresh[i]) - static_cast<double>(s);
    sum += diff * diff;
  }
  return static_cast<float>(sum);
}

}  // namespace blend::kernels
#endif  // HWY_ONCE
