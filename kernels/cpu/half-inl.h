// Vector forms of formats/half.h, the same bit for bit: f16/bf16/f32 -> f32 and back.
//
// Included once per SIMD target; see any kernel.
#if defined(BLEND_KERNELS_HALF_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef BLEND_KERNELS_HALF_INL_H
#undef BLEND_KERNELS_HALF_INL_H
#else
#define BLEND_KERNELS_HALF_INL_H
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cpu/simd.h"
#include "formats/half.h"

HWY_BEFORE_NAMESPACE();
namespace blend::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Elements of f16 or bf16, as bits, to f32.
template <DType kType, class D>
HWY_INLINE hn::Vec<D> widen_16(D d, hn::Vec<hn::Rebind<uint16_t, D>> raw) {
  const hn::Rebind<uint32_t, D> d32;
  if constexpr (kType == DType::bf16) {
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, raw)));
  } else {
#if BLEND_HAS_HALF_CONVERSION
    const hn::Rebind<hwy::float16_t, D> df16;
    return hn::PromoteTo(d, hn::BitCast(df16, raw));
#else
    const hn::Rebind<int32_t, D> di;
    const auto h = hn::BitCast(di, hn::PromoteTo(d32, raw));
    const auto sign = hn::ShiftLeft<16>(hn::And(h, hn::Set(di, 0x8000)));
    const auto mag = hn::And(h, hn::Set(di, 0x7fff));
    const auto shifted = hn::ShiftLeft<13>(mag);
    const auto normal = hn::Add(shifted, hn::Set(di, 112 << 23));
    const auto special = hn::Or(shifted, hn::Set(di, 0x7f800000));
    const auto subnormal = hn::BitCast(di, hn::Mul(hn::ConvertTo(d, mag), hn::Set(d, 0x1p-24f)));
    auto bits = hn::IfThenElse(hn::Gt(mag, hn::Set(di, 0x7bff)), special, normal);
    bits = hn::IfThenElse(hn::Lt(mag, hn::Set(di, 0x400)), subnormal, bits);
    return hn::BitCast(d, hn::Or(bits, sign));
#endif
  }
}

// Loads Lanes(d) elements of type kType at any alignment.
template <DType kType, class D>
HWY_INLINE hn::Vec<D> load_f32(D d, const std::byte* p) {
  if constexpr (kType == DType::f32) {
    return hn::LoadU(d, reinterpret_cast<const float*>(p));
  } else {
    const hn::Rebind<uint16_t, D> d16;
    return widen_16<kType>(d, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p)));
  }
}

template <DType kType>
HWY_INLINE float load_f32_scalar(const std::byte* p) {
  if constexpr (kType == DType::f32) {
    float f;
    std::memcpy(&f, p, sizeof f);
    return f;
  } else {
    uint16_t h;
    std::memcpy(&h, p, sizeof h);
    return kType == DType::f16 ? f16_to_f32(h) : bf16_to_f32(h);
  }
}

// Rounds to f16 or bf16, to nearest even, as bits.
template <DType kType, class D>
HWY_INLINE hn::Vec<hn::Rebind<uint16_t, D>> round_to_16([[maybe_unused]] D d, hn::Vec<D> v) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::Rebind<int32_t, D> di;
  if constexpr (kType == DType::bf16) {
    const hn::Rebind<uint32_t, D> du;
    const auto uu = hn::BitCast(du, v);
    const auto lsb = hn::And(hn::ShiftRight<16>(uu), hn::Set(du, 1));
    const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(uu, hn::Set(du, 0x7fff)), lsb));
    const auto nan = hn::Or(hn::ShiftRight<16>(uu), hn::Set(du, 0x40));
    const auto bits = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), nan, rounded);
    return hn::DemoteTo(d16, hn::BitCast(di, bits));
  } else {
#if BLEND_HAS_HALF_CONVERSION
    const hn::Rebind<hwy::float16_t, D> df16;
    return hn::BitCast(d16, hn::DemoteTo(df16, v));
#else
    const auto u = hn::BitCast(di, v);
    const auto sign = hn::And(hn::ShiftRight<16>(u), hn::Set(di, 0x8000));
    const auto whole = hn::And(u, hn::Set(di, 0x7fffffff));
    // From 65536 on all become infinity, to which 65536 rounds as any other number would.
    const auto mag = hn::Min(whole, hn::Set(di, 0x47800000));
    const auto lsb = hn::And(hn::ShiftRight<13>(mag), hn::Set(di, 1));
    // Wraps for results that are subnormal; those lanes are replaced below.
    const auto normal =
        hn::ShiftRight<13>(hn::Add(hn::Add(mag, hn::Set(di, 0xfff - 0x38000000)), lsb));
    const auto shifted = hn::Add(hn::BitCast(d, mag), hn::Set(d, 0.5f));
    const auto subnormal = hn::Sub(hn::BitCast(di, shifted), hn::Set(di, 0x3f000000));
    const auto nan =
        hn::Or(hn::Set(di, 0x7e00), hn::And(hn::ShiftRight<13>(whole), hn::Set(di, 0x3ff)));
    auto bits = hn::IfThenElse(hn::Lt(mag, hn::Set(di, 0x38800000)), subnormal, normal);
    bits = hn::IfThenElse(hn::Gt(whole, hn::Set(di, 0x7f800000)), nan, bits);
    return hn::DemoteTo(d16, hn::Or(bits, sign));
#endif
  }
}

// The largest magnitude rounded to f16 or bf16 so far, as bits.
class Largest16 {
 private:
  using D32 = hn::CappedTag<float, 16>;
  using D16 = hn::Rebind<uint16_t, D32>;
  using DI16 = hn::Rebind<int16_t, D32>;

 public:
  HWY_INLINE Largest16() : largest_(hn::Zero(DI16())) {}
  HWY_INLINE void see(hn::Vec<D16> bits) {
    const auto magnitude = hn::And(hn::BitCast(DI16(), bits), hn::Set(DI16(), 0x7fff));
    largest_ = hn::Max(largest_, magnitude);
  }
  HWY_INLINE void see(uint16_t bits) {
    rest_ = (bits & 0x7fff) > rest_ ? static_cast<uint16_t>(bits & 0x7fff) : rest_;
  }
  template <DType kType>
  HWY_INLINE bool finite() const {
    constexpr int16_t kInfinity = kType == DType::f16 ? 0x7c00 : 0x7f80;
    return rest_ < kInfinity && hn::AllTrue(DI16(), hn::Lt(largest_, hn::Set(DI16(), kInfinity)));
  }

 private:
  hn::Vec<DI16> largest_;
  uint16_t rest_ = 0;
};

// Rounds n values to f16 or bf16.
template <DType kType>
HWY_INLINE void encode_16(const float* src, size_t n, std::byte* out, Largest16& largest) {
  const hn::CappedTag<float, 16> d;
  const hn::Rebind<uint16_t, decltype(d)> d16;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto bits = round_to_16<kType>(d, hn::LoadU(d, src + i));
    largest.see(bits);
    hn::StoreU(bits, d16, reinterpret_cast<uint16_t*>(out + i * 2));
  }
  for (; i < n; ++i) {
    const uint16_t h = kType == DType::f16 ? f32_to_f16(src[i]) : f32_to_bf16(src[i]);
    largest.see(h);
    std::memcpy(out + i * 2, &h, sizeof h);
  }
}

// False if a result is not finite.
template <DType kType>
HWY_INLINE bool encode_16(const float* src, size_t n, std::byte* out) {
  Largest16 largest;
  encode_16<kType>(src, n, out, largest);
  return largest.finite<kType>();
}

// ---- Elements of a KV cache (kv_layout.h)

template <DType kType>
using Cached = std::conditional_t<kType == DType::f32, float, uint16_t>;

// p: at a multiple of Lanes(d) elements.
template <DType kType, class D>
HWY_INLINE hn::Vec<D> load_cached(D d, const Cached<kType>* p) {
  if constexpr (kType == DType::f32) {
    return hn::Load(d, p);
  } else {
    return load_f32<kType>(d, reinterpret_cast<const std::byte*>(p));
  }
}

// Calls fn with a constant of the type.
template <class Fn>
HWY_INLINE void with_cached(DType dtype, const Fn& fn) {
  switch (dtype) {
    case DType::f16:
      return fn(std::integral_constant<DType, DType::f16>{});
    case DType::bf16:
      return fn(std::integral_constant<DType, DType::bf16>{});
    case DType::f32:
      break;
  }
  fn(std::integral_constant<DType, DType::f32>{});
}

}  // namespace blend::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
