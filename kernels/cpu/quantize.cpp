#include "cpu/quantize.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>

#include "cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/quantize.cpp"
#include <hwy/foreach_target.h>
// after foreach_target
#include <hwy/highway.h>

#include "cpu/half-inl.h"

#ifndef BLEND_KERNELS_QUANTIZE_ONCE
#define BLEND_KERNELS_QUANTIZE_ONCE
namespace blend::kernels {

constexpr float largest_of(DType dtype) {
  return dtype == DType::f16 ? 65504.0f : dtype == DType::bf16 ? 0x1.fep127f : FLT_MAX;
}

// Divides rather than multiplying with the inverse, which would overflow for the smallest scales.
inline int quantize_scalar(float offset, float step, float least, float most) {
  if (!(step > 0)) return 0;
  return static_cast<int>(std::nearbyint(std::clamp(offset / step, least, most)));
}

inline void store_scalar(DType dtype, float value, std::byte* out) {
  const float limit = largest_of(dtype);
  const float x = std::clamp(value, -limit, limit);
  if (dtype == DType::f32) {
    std::memcpy(out, &x, sizeof x);
  } else {
    const uint16_t h = dtype == DType::f16 ? f32_to_f16(x) : f32_to_bf16(x);
    std::memcpy(out, &h, sizeof h);
  }
}

}  // namespace blend::kernels
#endif  // BLEND_KERNELS_QUANTIZE_ONCE

HWY_BEFORE_NAMESPACE();
namespace blend::kernels::HWY_NAMESPACE {

using DF = hn::CappedTag<float, 16>;
using DI = hn::Rebind<int32_t, DF>;
using VF = hn::Vec<DF>;
using VI = hn::Vec<DI>;

template <DType kType>
constexpr size_t kSizeOf = kType == DType::f32 ? 4 : 2;

template <DType kType>
HWY_INLINE void StoreAs(DF d, VF value, std::byte* out) {
  const VF limit = hn::Set(d, largest_of(kType));
  const VF x = hn::Min(hn::Max(value, hn::Neg(limit)), limit);
  if constexpr (kType == DType::f32) {
    hn::StoreU(x, d, reinterpret_cast<float*>(out));
  } else {
    const hn::Rebind<uint16_t, DF> d16;
    hn::StoreU(round_to_16<kType>(d, x), d16, reinterpret_cast<uint16_t*>(out));
  }
}

HWY_INLINE VI Quantize(DF d, VF offset, VF step, float least, float most) {
  const auto scaled = hn::Div(offset, step);
  const auto clamped = hn::Min(hn::Max(scaled, hn::Set(d, least)), hn::Set(d, most));
  // A scale of 0 would divide 0 by 0.
  return hn::NearestInt(hn::IfThenElseZero(hn::Gt(step, hn::Zero(d)), clamped));
}

void RangeColumns(const float* x, size_t cols, float* lo, float* hi) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  size_t c = 0;
  for (; c + lanes <= cols; c += lanes) {
    const auto v = hn::LoadU(d, x + c);
    hn::StoreU(hn::Min(v, hn::LoadU(d, lo + c)), d, lo + c);
    hn::StoreU(hn::Max(v, hn::LoadU(d, hi + c)), d, hi + c);
  }
  for (; c < cols; ++c) {
    lo[c] = std::min(lo[c], x[c]);
    hi[c] = std::max(hi[c], x[c]);
  }
}

void RangeGroups(const float* x, size_t cols, size_t group, float* lo, float* hi) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  for (size_t first = 0, g = 0; first < cols; first += group, ++g) {
    const size_t end = std::min(cols, first + group);
    size_t c = first;
    float least = x[first];
    float most = x[first];
    if (c + lanes <= end) {
      auto vl = hn::LoadU(d, x + c);
      auto vh = vl;
      for (c += lanes; c + lanes <= end; c += lanes) {
        const auto v = hn::LoadU(d, x + c);
        vl = hn::Min(vl, v);
        vh = hn::Max(vh, v);
      }
      least = hn::GetLane(hn::MinOfLanes(d, vl));
      most = hn::GetLane(hn::MaxOfLanes(d, vh));
    }
    for (; c < end; ++c) {
      least = std::min(least, x[c]);
      most = std::max(most, x[c]);
    }
    lo[g] = least;
    hi[g] = most;
  }
}

void Quantize8(const float* x, size_t cols, const float* step, size_t group, int8_t* out) {
  const DF d;
  const hn::Rebind<int8_t, DF> d8;
  const size_t lanes = hn::Lanes(d);
  const size_t length = group == 1 ? cols : group;
  for (size_t first = 0, g = 0; first < cols; first += length, ++g) {
    const size_t end = std::min(cols, first + length);
    size_t c = first;
    for (; c + lanes <= end; c += lanes) {
      const auto s = group == 1 ? hn::LoadU(d, step + c) : hn::Set(d, step[g]);
      const auto q = Quantize(d, hn::LoadU(d, x + c), s, -127.0f, 127.0f);
      hn::StoreU(hn::DemoteTo(d8, q), d8, out + c);
    }
    for (; c < end; ++c) {
      const float s = group == 1 ? step[c] : step[g];
      out[c] = static_cast<int8_t>(quantize_scalar(x[c], s, -127.0f, 127.0f));
    }
  }
}

template <DType kType>
void Dequantize8As(const int8_t* q, size_t rows, size_t cols, const float* step, size_t step_stride,
                   size_t group, std::byte* out) {
  const DF d;
  const DI di;
  const hn::Rebind<int8_t, DF> d8;
  const size_t lanes = hn::Lanes(d);
  const size_t length = group == 1 ? cols : group;
  for (size_t r = 0; r < rows; ++r, q += cols, out += cols * kSizeOf<kType>, step += step_stride) {
    for (size_t first = 0, g = 0; first < cols; first += length, ++g) {
      const size_t end = std::min(cols, first + length);
      size_t c = first;
      for (; c + lanes <= end; c += lanes) {
        const auto s = group == 1 ? hn::LoadU(d, step + c) : hn::Set(d, step[g]);
        const auto v = hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(d8, q + c)));
        StoreAs<kType>(d, hn::Mul(v, s), out + c * kSizeOf<kType>);
      }
      for (; c < end; ++c) {
        const float s = group == 1 ? step[c] : step[g];
        store_scalar(kType, static_cast<float>(q[c]) * s, out + c * kSizeOf<kType>);
      }
    }
  }
}

void Dequantize8(const int8_t* q, size_t rows, size_t cols, const float* step, size_t step_stride,
                 size_t group, DType dtype, std::byte* out) {
  if (dtype == DType::f16) {
    Dequantize8As<DType::f16>(q, rows, cols, step, step_stride, group, out);
  } else if (dtype == DType::bf16) {
    Dequantize8As<DType::bf16>(q, rows, cols, step, step_stride, group, out);
  } else {
    Dequantize8As<DType::f32>(q, rows, cols, step, step_stride, group, out);
  }
}

template <DType kType>
void Dequantize16As(const int16_t* q, size_t n, float step, std::byte* out) {
  const DF d;
  const DI di;
  const hn::Rebind<int16_t, DF> d16;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto v = hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(d16, q + i)));
    StoreAs<kType>(d, hn::Mul(v, hn::Set(d, step)), out + i * kSizeOf<kType>);
  }
  for (; i < n; ++i) {
    store_scalar(kType, static_cast<float>(q[i]) * step, out + i * kSizeOf<kType>);
  }
}

void Dequantize16(const int16_t* q, size_t n, float step, DType dtype, std::byte* out) {
  if (dtype == DType::f16) {
    Dequantize16As<DType::f16>(q, n, step, out);
  } else if (dtype == DType::bf16) {
    Dequantize16As<DType::bf16>(q, n, step, out);
  } else {
    Dequantize16As<DType::f32>(q, n, step, out);
  }
}

void Quantize4Columns(const float* low, const float* high, size_t cols, const float* base,
                      const float* step, uint8_t* out) {
  const DF d;
  const hn::Rebind<uint8_t, DF> d8;
  const size_t lanes = hn::Lanes(d);
  size_t c = 0;
  for (; c + lanes <= cols; c += lanes) {
    const auto b = hn::LoadU(d, base + c);
    const auto s = hn::LoadU(d, step + c);
    auto q = Quantize(d, hn::Sub(hn::LoadU(d, low + c), b), s, 0.0f, 15.0f);
    if (high != nullptr) {
      const auto h = Quantize(d, hn::Sub(hn::LoadU(d, high + c), b), s, 0.0f, 15.0f);
      q = hn::Or(q, hn::ShiftLeft<4>(h));
    }
    hn::StoreU(hn::DemoteTo(d8, q), d8, out + c);
  }
  for (; c < cols; ++c) {
    int q = quantize_scalar(low[c] - base[c], step[c], 0.0f, 15.0f);
    if (high != nullptr) q |= quantize_scalar(high[c] - base[c], step[c], 0.0f, 15.0f) << 4;
    out[c] = static_cast<uint8_t>(q);
  }
}

template <DType kType>
void Dequantize4ColumnsAs(const uint8_t* q, size_t cols, const float* base, const float* step,
                          std::byte* low, std::byte* high) {
  const DF d;
  const DI di;
  const hn::Rebind<uint8_t, DF> d8;
  const size_t lanes = hn::Lanes(d);
  size_t c = 0;
  for (; c + lanes <= cols; c += lanes) {
    const auto b = hn::LoadU(d, base + c);
    const auto s = hn::LoadU(d, step + c);
    const auto both = hn::PromoteTo(di, hn::LoadU(d8, q + c));
    const auto l = hn::ConvertTo(d, hn::And(both, hn::Set(di, 15)));
    StoreAs<kType>(d, hn::MulAdd(l, s, b), low + c * kSizeOf<kType>);
    if (high != nullptr) {
      const auto h = hn::ConvertTo(d, hn::ShiftRight<4>(both));
      StoreAs<kType>(d, hn::MulAdd(h, s, b), high + c * kSizeOf<kType>);
    }
  }
  for (; c < cols; ++c) {
    const size_t at = c * kSizeOf<kType>;
    store_scalar(kType, base[c] + step[c] * static_cast<float>(q[c] & 15), low + at);
    if (high != nullptr) {
      store_scalar(kType, base[c] + step[c] * static_cast<float>(q[c] >> 4), high + at);
    }
  }
}

void Dequantize4Columns(const uint8_t* q, size_t cols, const float* base, const float* step,
                        DType dtype, std::byte* low, std::byte* high) {
  if (dtype == DType::f16) {
    Dequantize4ColumnsAs<DType::f16>(q, cols, base, step, low, high);
  } else if (dtype == DType::bf16) {
    Dequantize4ColumnsAs<DType::bf16>(q, cols, base, step, low, high);
  } else {
    Dequantize4ColumnsAs<DType::f32>(q, cols, base, step, low, high);
  }
}

void Quantize4Groups(const float* x, size_t cols, const float* base, const float* step,
                     uint8_t* out) {
  const DF d;
  const hn::Rebind<uint8_t, DF> d8;
  const size_t lanes = hn::Lanes(d);
  for (size_t first = 0, g = 0; first < cols; first += kGroup4, ++g) {
    const size_t n = std::min(kGroup4, cols - first);
    const size_t half = nibble_bytes(n);
    const auto b = hn::Set(d, base[g]);
    const auto s = hn::Set(d, step[g]);
    size_t i = 0;
    for (; n == kGroup4 && i + lanes <= half; i += lanes) {
      const auto l = Quantize(d, hn::Sub(hn::LoadU(d, x + first + i), b), s, 0.0f, 15.0f);
      const auto h = Quantize(d, hn::Sub(hn::LoadU(d, x + first + half + i), b), s, 0.0f, 15.0f);
      hn::StoreU(hn::DemoteTo(d8, hn::Or(l, hn::ShiftLeft<4>(h))), d8, out + i);
    }
    for (; i < half; ++i) {
      int q = quantize_scalar(x[first + i] - base[g], step[g], 0.0f, 15.0f);
      if (i + half < n) {
        q |= quantize_scalar(x[first + half + i] - base[g], step[g], 0.0f, 15.0f) << 4;
      }
      out[i] = static_cast<uint8_t>(q);
    }
    out += half;
  }
}

template <DType kType>
void Dequantize4GroupsAs(const uint8_t* q, size_t cols, const float* base, const float* step,
                         std::byte* out) {
  const DF d;
  const DI di;
  const hn::Rebind<uint8_t, DF> d8;
  const size_t lanes = hn::Lanes(d);
  for (size_t first = 0, g = 0; first < cols; first += kGroup4, ++g) {
    const size_t n = std::min(kGroup4, cols - first);
    const size_t half = nibble_bytes(n);
    const auto b = hn::Set(d, base[g]);
    const auto s = hn::Set(d, step[g]);
    std::byte* low = out + first * kSizeOf<kType>;
    std::byte* high = low + half * kSizeOf<kType>;
    size_t i = 0;
    for (; n == kGroup4 && i + lanes <= half; i += lanes) {
      const auto both = hn::PromoteTo(di, hn::LoadU(d8, q + i));
      const auto l = hn::ConvertTo(d, hn::And(both, hn::Set(di, 15)));
      const auto h = hn::ConvertTo(d, hn::ShiftRight<4>(both));
      StoreAs<kType>(d, hn::MulAdd(l, s, b), low + i * kSizeOf<kType>);
      StoreAs<kType>(d, hn::MulAdd(h, s, b), high + i * kSizeOf<kType>);
    }
    for (; i < half; ++i) {
      const size_t at = i * kSizeOf<kType>;
      store_scalar(kType, base[g] + step[g] * static_cast<float>(q[i] & 15), low + at);
      if (i + half < n) {
        store_scalar(kType, base[g] + step[g] * static_cast<float>(q[i] >> 4), high + at);
      }
    }
    q += half;
  }
}

void Dequantize4Groups(const uint8_t* q, size_t cols, const float* base, const float* step,
                       DType dtype, std::byte* out) {
  if (dtype == DType::f16) {
    Dequantize4GroupsAs<DType::f16>(q, cols, base, step, out);
  } else if (dtype == DType::bf16) {
    Dequantize4GroupsAs<DType::bf16>(q, cols, base, step, out);
  } else {
    Dequantize4GroupsAs<DType::f32>(q, cols, base, step, out);
  }
}

}  // namespace blend::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace blend::kernels {

HWY_EXPORT(RangeColumns);
HWY_EXPORT(RangeGroups);
HWY_EXPORT(Quantize8);
HWY_EXPORT(Dequantize8);
HWY_EXPORT(Dequantize16);
HWY_EXPORT(Quantize4Columns);
HWY_EXPORT(Dequantize4Columns);
HWY_EXPORT(Quantize4Groups);
HWY_EXPORT(Dequantize4Groups);

void range_columns(const float* x, size_t cols, float* lo, float* hi) {
  HWY_DYNAMIC_DISPATCH(RangeColumns)(x, cols, lo, hi);
}
void range_groups(const float* x, size_t cols, size_t group, float* lo, float* hi) {
  HWY_DYNAMIC_DISPATCH(RangeGroups)(x, cols, group, lo, hi);
}
void quantize8(const float* x, size_t cols, const float* step, size_t group, int8_t* out) {
  HWY_DYNAMIC_DISPATCH(Quantize8)(x, cols, step, group, out);
}
void dequantize8(const int8_t* q, size_t rows, size_t cols, const float* step, size_t step_stride,
                 size_t group, DType dtype, std::byte* out) {
  HWY_DYNAMIC_DISPATCH(Dequantize8)(q, rows, cols, step, step_stride, group, dtype, out);
}
void dequantize16(const int16_t* q, size_t n, float step, DType dtype, std::byte* out) {
  HWY_DYNAMIC_DISPATCH(Dequantize16)(q, n, step, dtype, out);
}
void quantize4_columns(const float* low, const float* high, size_t cols, const float* base,
                       const float* step, uint8_t* out) {
  HWY_DYNAMIC_DISPATCH(Quantize4Columns)(low, high, cols, base, step, out);
}
void dequantize4_columns(const uint8_t* q, size_t cols, const float* base, const float* step,
                         DType dtype, std::byte* low, std::byte* high) {
  HWY_DYNAMIC_DISPATCH(Dequantize4Columns)(q, cols, base, step, dtype, low, high);
}
void quantize4_groups(const float* x, size_t cols, const float* base, const float* step,
                      uint8_t* out) {
  HWY_DYNAMIC_DISPATCH(Quantize4Groups)(x, cols, base, step, out);
}
void dequantize4_groups(const uint8_t* q, size_t cols, const float* base, const float* step,
                        DType dtype, std::byte* out) {
  HWY_DYNAMIC_DISPATCH(Dequantize4Groups)(q, cols, base, step, dtype, out);
}

int quantize8_ref(float x, float step) { return quantize_scalar(x, step, -127.0f, 127.0f); }
int quantize4_ref(float x, float base, float step) {
  return quantize_scalar(x - base, step, 0.0f, 15.0f);
}
float dequantize_ref(int q, float base, float step, DType dtype) {
  const float limit = largest_of(dtype);
  return std::clamp(base + step * static_cast<float>(q), -limit, limit);
}

}  // namespace blend::kernels
#endif  // HWY_ONCE
