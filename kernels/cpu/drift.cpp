#include "cpu/drift.h"

#include "cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/drift.cpp"
#include <hwy/foreach_target.h>
// after foreach_target
#include <hwy/highway.h>

#include "cpu/convert.h"
#include "cpu/half-inl.h"

HWY_BEFORE_NAMESPACE();
namespace blend::kernels::HWY_NAMESPACE {

template <DType kType>
void decode_add_as(const std::byte* stored, size_t n, const float* drift, float* out) {
  const hn::CappedTag<float, 16> d;
  const size_t lanes = hn::Lanes(d);
  constexpr size_t kSize = kType == DType::f32 ? 4 : 2;
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::Add(load_f32<kType>(d, stored + i * kSize), hn::LoadU(d, drift + i)), d,
               out + i);
  }
  for (; i < n; ++i) out[i] = load_f32_scalar<kType>(stored + i * kSize) + drift[i];
}

template <DType kType>
void difference_as(const float* fresh, const std::byte* stored, size_t n, float* out) {
  const hn::CappedTag<float, 16> d;
  const size_t lanes = hn::Lanes(d);
  constexpr size_t kSize = kType == DType::f32 ? 4 : 2;
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::Sub(hn::LoadU(d, fresh + i), load_f32<kType>(d, stored + i * kSize)), d,
               out + i);
  }
  for (; i < n; ++i) out[i] = fresh[i] - load_f32_scalar<kType>(stored + i * kSize);
}

void DecodeAdd(const std::byte* stored, DType dtype, size_t n, const float* drift, float* out) {
  switch (dtype) {
    case DType::f16:
      return decode_add_as<DType::f16>(stored, n, drift, out);
    case DType::bf16:
      return decode_add_as<DType::bf16>(stored, n, drift, out);
    case DType::f32:
      break;
  }
  decode_add_as<DType::f32>(stored, n, drift, out);
}

void Difference(const float* fresh, const std::byte* stored, DType dtype, size_t n, float* out) {
  switch (dtype) {
    case DType::f16:
      return difference_as<DType::f16>(fresh, stored, n, out);
    case DType::bf16:
      return difference_as<DType::bf16>(fresh, stored, n, out);
    case DType::f32:
      break;
  }
  difference_as<DType::f32>(fresh, stored, n, out);
}

void AddScaled(const float* x, float factor, size_t n, float* sum) {
  const hn::CappedTag<float, 16> d;
  const size_t lanes = hn::Lanes(d);
  const auto f = hn::Set(d, factor);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::MulAdd(hn::LoadU(d, x + i), f, hn::LoadU(d, sum + i)), d, sum + i);
  }
  for (; i < n; ++i) sum[i] += x[i] * factor;
}

DriftSums SumsOf(const float* predicted, const float* drift, size_t n) {
  const hn::CappedTag<float, 16> d;
  const size_t lanes = hn::Lanes(d);
  auto both = hn::Zero(d), own = hn::Zero(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto y = hn::LoadU(d, predicted + i);
    both = hn::MulAdd(y, hn::LoadU(d, drift + i), both);
    own = hn::MulAdd(y, y, own);
  }
  DriftSums sums{hn::GetLane(hn::SumOfLanes(d, both)), hn::GetLane(hn::SumOfLanes(d, own))};
  for (; i < n; ++i) {
    sums.both += predicted[i] * drift[i];
    sums.predicted += predicted[i] * predicted[i];
  }
  return sums;
}

}  // namespace blend::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace blend::kernels {

HWY_EXPORT(DecodeAdd);
HWY_EXPORT(Difference);
HWY_EXPORT(AddScaled);
HWY_EXPORT(SumsOf);

void add_scaled(const float* x, float factor, size_t n, float* sum) {
  HWY_DYNAMIC_DISPATCH(AddScaled)(x, factor, n, sum);
}

void add_scaled_ref(const float* x, float factor, size_t n, float* sum) {
  for (size_t i = 0; i < n; ++i) sum[i] += x[i] * factor;
}

DriftSums drift_sums(const float* predicted, const float* drift, size_t n) {
  return HWY_DYNAMIC_DISPATCH(SumsOf)(predicted, drift, n);
}

void decode_add(const std::byte* stored, DType dtype, size_t n, const float* drift, float* out) {
  HWY_DYNAMIC_DISPATCH(DecodeAdd)(stored, dtype, n, drift, out);
}

void difference(const float* fresh, const std::byte* stored, DType dtype, size_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(Difference)(fresh, stored, dtype, n, out);
}

DriftSums drift_sums_ref(const float* predicted, const float* drift, size_t n) {
  double both = 0, own = 0;
  for (size_t i = 0; i < n; ++i) {
    both += static_cast<double>(predicted[i]) * static_cast<double>(drift[i]);
    own += static_cast<double>(predicted[i]) * static_cast<double>(predicted[i]);
  }
  return {static_cast<float>(both), static_cast<float>(own)};
}

void decode_add_ref(const std::byte* stored, DType dtype, size_t n, const float* drift,
                    float* out) {
  decode_ref(stored, dtype, n, out);
  for (size_t i = 0; i < n; ++i) out[i] += drift[i];
}

void difference_ref(const float* fresh, const std::byte* stored, DType dtype, size_t n,
                    float* out) {
  decode_ref(stored, dtype, n, out);
  for (size_t i = 0; i < n; ++i) out[i] = fresh[i] - out[i];
}

}  // namespace blend::kernels
#endif  // HWY_ONCE
