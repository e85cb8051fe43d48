#include "cpu/convert.h"

#include <cmath>
#include <cstring>

#include "cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/convert.cpp"
#include <hwy/foreach_target.h>
// after foreach_target
#include <hwy/highway.h>

#include "cpu/half-inl.h"

HWY_BEFORE_NAMESPACE();
namespace blend::kernels::HWY_NAMESPACE {

using D32 = hn::CappedTag<float, 16>;

template <DType kType>
void decode_as(const std::byte* src, size_t n, float* out) {
  const D32 d;
  const size_t lanes = hn::Lanes(d);
  constexpr size_t kSize = kType == DType::f32 ? 4 : 2;
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(load_f32<kType>(d, src + i * kSize), d, out + i);
  for (; i < n; ++i) out[i] = load_f32_scalar<kType>(src + i * kSize);
}

void Decode(const std::byte* src, DType dtype, size_t n, float* out) {
  if (dtype == DType::f32) {
    if (n > 0) std::memcpy(out, src, n * sizeof(float));
  } else if (dtype == DType::f16) {
    decode_as<DType::f16>(src, n, out);
  } else {
    decode_as<DType::bf16>(src, n, out);
  }
}

size_t FindNotFinite(const float* src, size_t n) {
  const D32 d;
  const hn::Rebind<int32_t, D32> di;
  const size_t lanes = hn::Lanes(d);
  const auto magnitude = hn::Set(di, 0x7fffffff);
  const auto limit = hn::Set(di, 0x7f7fffff);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto bits = hn::And(hn::BitCast(di, hn::LoadU(d, src + i)), magnitude);
    if (!hn::AllFalse(di, hn::Gt(bits, limit))) break;
  }
  for (; i < n; ++i) {
    if (!std::isfinite(src[i])) return i;
  }
  return n;
}

bool Encode(const float* src, size_t n, DType dtype, std::byte* out) {
  if (dtype == DType::f16) return encode_16<DType::f16>(src, n, out);
  if (dtype == DType::bf16) return encode_16<DType::bf16>(src, n, out);
  if (n > 0) std::memcpy(out, src, n * sizeof(float));
  return FindNotFinite(src, n) == n;
}

}  // namespace blend::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace blend::kernels {

HWY_EXPORT(Decode);
HWY_EXPORT(Encode);
HWY_EXPORT(FindNotFinite);

void decode(const std::byte* src, DType dtype, size_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(Decode)(src, dtype, n, out);
}

bool encode(const float* src, size_t n, DType dtype, std::byte* out) {
  return HWY_DYNAMIC_DISPATCH(Encode)(src, n, dtype, out);
}

size_t find_not_finite(const float* src, size_t n) {
  return HWY_DYNAMIC_DISPATCH(FindNotFinite)(src, n);
}

void decode_ref(const std::byte* src, DType dtype, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) {
    if (dtype == DType::f32) {
      std::memcpy(out + i, src + i * 4, 4);
    } else {
      uint16_t h;
      std::memcpy(&h, src + i * 2, 2);
      out[i] = dtype == DType::f16 ? f16_to_f32(h) : bf16_to_f32(h);
    }
  }
}

bool encode_ref(const float* src, size_t n, DType dtype, std::byte* out) {
  bool finite = true;
  for (size_t i = 0; i < n; ++i) {
    if (dtype == DType::f32) {
      std::memcpy(out + i * 4, src + i, 4);
      finite = finite && std::isfinite(src[i]);
    } else {
      const uint16_t h = dtype == DType::f16 ? f32_to_f16(src[i]) : f32_to_bf16(src[i]);
      std::memcpy(out + i * 2, &h, 2);
      finite = finite && std::isfinite(dtype == DType::f16 ? f16_to_f32(h) : bf16_to_f32(h));
    }
  }
  return finite;
}

}  // namespace blend::kernels
#endif  // HWY_ONCE
