#include "cpu/dot.h"

#include "cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/dot.cpp"
#include <hwy/foreach_target.h>
// after foreach_target
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace blend::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

float Dot(const float* a, const float* b, size_t n) {
  const hn::CappedTag<float, 16> d;
  const size_t lanes = hn::Lanes(d);
  // Four chains: one would wait for each addition before the next.
  constexpr size_t kChains = 4;
  hn::Vec<decltype(d)> sums[kChains] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  size_t i = 0;
  for (; i + kChains * lanes <= n; i += kChains * lanes) {
    BLEND_UNROLL
    for (size_t c = 0; c < kChains; ++c) {
      const size_t at = i + c * lanes;
      sums[c] = hn::MulAdd(hn::LoadU(d, a + at), hn::LoadU(d, b + at), sums[c]);
    }
  }
  for (; i + lanes <= n; i += lanes) {
    sums[0] = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), sums[0]);
  }
  float sum =
      hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3]))));
  for (; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace blend::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace blend::kernels {

HWY_EXPORT(Dot);

float dot(const float* a, const float* b, size_t n) { return HWY_DYNAMIC_DISPATCH(Dot)(a, b, n); }

float dot_ref(const float* a, const float* b, size_t n) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return static_cast<float>(sum);
}

}  // namespace blend::kernels
#endif  // HWY_ONCE
