#include "cpu/plane_split.h"

#include "cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/plane_split.cpp"
#include <hwy/foreach_target.h>
// after foreach_target
#include <hwy/highway.h>

#ifndef BLEND_KERNELS_PLANE_SPLIT_ONCE
#define BLEND_KERNELS_PLANE_SPLIT_ONCE
namespace blend::kernels {

// The two bytes that share exponent and sign: top = s eeeeeee, next = e mmmmmmm.
inline uint8_t high_of(uint8_t top, uint8_t next) {
  return static_cast<uint8_t>(top << 1 | next >> 7);
}
inline uint8_t low_of(uint8_t top, uint8_t next) {
  return static_cast<uint8_t>((next & 0x7f) | (top & 0x80));
}
inline uint8_t top_of(uint8_t high, uint8_t low) {
  return static_cast<uint8_t>(high >> 1 | (low & 0x80));
}
inline uint8_t next_of(uint8_t high, uint8_t low) {
  return static_cast<uint8_t>((low & 0x7f) | high << 7);
}

inline void split_scalar(const uint8_t* src, size_t size, size_t n, uint8_t* high, uint8_t* rest) {
  for (size_t i = 0; i < n; ++i) {
    const uint8_t* x = src + i * size;
    uint8_t* r = rest + i * (size - 1);
    high[i] = high_of(x[size - 1], x[size - 2]);
    for (size_t b = 0; b + 2 < size; ++b) r[b] = x[b];
    r[size - 2] = low_of(x[size - 1], x[size - 2]);
  }
}

inline void merge_scalar(const uint8_t* high, const uint8_t* rest, size_t size, size_t n,
                         uint8_t* out) {
  for (size_t i = 0; i < n; ++i) {
    const uint8_t* r = rest + i * (size - 1);
    uint8_t* x = out + i * size;
    for (size_t b = 0; b + 2 < size; ++b) x[b] = r[b];
    x[size - 2] = next_of(high[i], r[size - 2]);
    x[size - 1] = top_of(high[i], r[size - 2]);
  }
}

}  // namespace blend::kernels
#endif  // BLEND_KERNELS_PLANE_SPLIT_ONCE

HWY_BEFORE_NAMESPACE();
namespace blend::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D8 = hn::ScalableTag<uint8_t>;
using V8 = hn::Vec<D8>;

HWY_INLINE V8 High(D8 d, V8 top, V8 next) {
  (void)d;
  return hn::Or(hn::Add(top, top), hn::ShiftRight<7>(next));
}
HWY_INLINE V8 Low(D8 d, V8 top, V8 next) {
  return hn::OrAnd(hn::And(top, hn::Set(d, 0x80)), next, hn::Set(d, 0x7f));
}
HWY_INLINE V8 Top(D8 d, V8 high, V8 low) {
  return hn::OrAnd(hn::ShiftRight<1>(high), low, hn::Set(d, 0x80));
}
HWY_INLINE V8 Next(D8 d, V8 high, V8 low) {
  return hn::OrAnd(hn::ShiftLeft<7>(high), low, hn::Set(d, 0x7f));
}

void SplitPlanes(const uint8_t* src, size_t size, size_t n, uint8_t* high, uint8_t* rest) {
  const D8 d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  if (size == 2) {
    for (; i + lanes <= n; i += lanes) {
      V8 next, top;
      hn::LoadInterleaved2(d, src + i * 2, next, top);
      hn::StoreU(High(d, top, next), d, high + i);
      hn::StoreU(Low(d, top, next), d, rest + i);
    }
  } else {
    for (; i + lanes <= n; i += lanes) {
      V8 b0, b1, next, top;
      hn::LoadInterleaved4(d, src + i * 4, b0, b1, next, top);
      hn::StoreU(High(d, top, next), d, high + i);
      hn::StoreInterleaved3(b0, b1, Low(d, top, next), d, rest + i * 3);
    }
  }
  split_scalar(src + i * size, size, n - i, high + i, rest + i * (size - 1));
}

void MergePlanes(const uint8_t* high, const uint8_t* rest, size_t size, size_t n, uint8_t* out) {
  const D8 d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  if (size == 2) {
    for (; i + lanes <= n; i += lanes) {
      const V8 h = hn::LoadU(d, high + i);
      const V8 low = hn::LoadU(d, rest + i);
      hn::StoreInterleaved2(Next(d, h, low), Top(d, h, low), d, out + i * 2);
    }
  } else {
    for (; i + lanes <= n; i += lanes) {
      const V8 h = hn::LoadU(d, high + i);
      V8 b0, b1, low;
      hn::LoadInterleaved3(d, rest + i * 3, b0, b1, low);
      hn::StoreInterleaved4(b0, b1, Next(d, h, low), Top(d, h, low), d, out + i * 4);
    }
  }
  merge_scalar(high + i, rest + i * (size - 1), size, n - i, out + i * size);
}

}  // namespace blend::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace blend::kernels {

HWY_EXPORT(SplitPlanes);
HWY_EXPORT(MergePlanes);

namespace {
size_t size_of(DType dtype) { return static_cast<size_t>(dtype_size(dtype)); }
const uint8_t* bytes_of(const std::byte* p) { return reinterpret_cast<const uint8_t*>(p); }
uint8_t* bytes_of(std::byte* p) { return reinterpret_cast<uint8_t*>(p); }
}  // namespace

void split_planes(const std::byte* src, DType dtype, size_t n, uint8_t* high, uint8_t* rest) {
  HWY_DYNAMIC_DISPATCH(SplitPlanes)(bytes_of(src), size_of(dtype), n, high, rest);
}

void merge_planes(const uint8_t* high, const uint8_t* rest, DType dtype, size_t n, std::byte* out) {
  HWY_DYNAMIC_DISPATCH(MergePlanes)(high, rest, size_of(dtype), n, bytes_of(out));
}

void split_planes_ref(const std::byte* src, DType dtype, size_t n, uint8_t* high, uint8_t* rest) {
  split_scalar(bytes_of(src), size_of(dtype), n, high, rest);
}

void merge_planes_ref(const uint8_t* high, const uint8_t* rest, DType dtype, size_t n,
                      std::byte* out) {
  merge_scalar(high, rest, size_of(dtype), n, bytes_of(out));
}

}  // namespace blend::kernels
#endif  // HWY_ONCE
