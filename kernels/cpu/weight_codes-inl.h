// Quantized blocks for products of few rows: one signed byte an element ("code"), and a scale and a
// least value for every part of a block, so that element = scale * code - least. For the meaning of
// the bits see formats/weight_blocks-inl.h.
//
// Included once per SIMD target; see any kernel.
#if defined(BLEND_KERNELS_WEIGHT_CODES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef BLEND_KERNELS_WEIGHT_CODES_INL_H
#undef BLEND_KERNELS_WEIGHT_CODES_INL_H
#else
#define BLEND_KERNELS_WEIGHT_CODES_INL_H
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cpu/lanes-inl.h"
#include "cpu/simd.h"
#include "formats/half.h"
#include "formats/weight_blocks.h"
#include "formats/weight_grids.h"

HWY_BEFORE_NAMESPACE();
namespace blend::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

namespace {
#include "formats/weight_blocks-inl.h"
#include "formats/weight_codes-inl.h"
}  // namespace

HWY_INLINE float half_value(const uint8_t* p) {
  uint16_t h = 0;
  std::memcpy(&h, p, sizeof h);
#if BLEND_HAS_HALF_CONVERSION
  const hn::CappedTag<float, 4> d;
  const hn::Rebind<uint16_t, decltype(d)> d16;
  const hn::Rebind<hwy::float16_t, decltype(d)> df16;
  return hn::GetLane(hn::PromoteTo(d, hn::BitCast(df16, hn::Set(d16, h))));
#else
  return f16_to_f32(h);
#endif
}

// Passes `n` bytes through `fn`, some at a time. Every type's runs are multiples of 16.
template <size_t n, class Fn>
HWY_INLINE void each_bytes(Fn fn) {
  const hn::CappedTag<uint8_t, n> d;
  for (size_t j = 0; j < n; j += hn::Lanes(d)) fn(d, j);
}
template <class D>
HWY_INLINE void store_codes(D d, hn::Vec<D> codes, int8_t* to) {
  hn::Store(codes, d, reinterpret_cast<uint8_t*>(to));
}
template <class D>
HWY_INLINE hn::Vec<D> low_nibbles(D d, hn::Vec<D> q) {
  return hn::And(q, hn::Set(d, uint8_t{15}));
}
// Shifts bytes; only the bits in `mask` are used: none that crossed over from a neighbour may be
// among them.
template <int kBits, class D>
HWY_INLINE hn::Vec<D> shift_left(D d, hn::Vec<D> v, uint8_t mask) {
  static_assert(kBits >= 0);
  if constexpr (hn::MaxLanes(D()) >= 2) {
    const hn::Repartition<uint16_t, D> d16;
    return hn::And(hn::BitCast(d, hn::ShiftLeft<kBits>(hn::BitCast(d16, v))), hn::Set(d, mask));
  } else {
    return hn::Set(d, static_cast<uint8_t>(hn::GetLane(v) << kBits & mask));
  }
}
template <int kBits, class D>
HWY_INLINE hn::Vec<D> shift_right(D d, hn::Vec<D> v, uint8_t mask) {
  static_assert(kBits >= 0);
  if constexpr (hn::MaxLanes(D()) >= 2) {
    const hn::Repartition<uint16_t, D> d16;
    return hn::And(hn::BitCast(d, hn::ShiftRight<kBits>(hn::BitCast(d16, v))), hn::Set(d, mask));
  } else {
    return hn::Set(d, static_cast<uint8_t>(hn::GetLane(v) >> kBits & mask));
  }
}

// Each type: kElements of a block in kBytes, kPart elements a scale. codes() returns where the
// codes are: in `codes`, or in the block itself. codes: [kElements], scale, least: [kElements /
// kPart]; `least` is written where kLeast.

struct CodesQ8_0 {
  static constexpr size_t kElements = 32, kBytes = 34, kPart = 32;
  static constexpr bool kLeast = false;
  static HWY_INLINE const int8_t* codes(const uint8_t* b, int8_t*, float* scale, float*) {
    scale[0] = half_value(b);
    return reinterpret_cast<const int8_t*>(b + 2);
  }
};

struct CodesQ4_0 {
  static constexpr size_t kElements = 32, kBytes = 18, kPart = 32;
  static constexpr bool kLeast = false;
  static constexpr size_t kNibbles = 2, kRun = 16;
  static constexpr float kMiddle = 8;
  static HWY_INLINE void parts(const uint8_t* b, float* scale, float*) { scale[0] = half_value(b); }
  static HWY_INLINE const int8_t* codes(const uint8_t* b, int8_t* codes, float* scale,
                                        float* least) {
    parts(b, scale, least);
    each_bytes<16>([&](auto d, size_t j) HWY_ATTR {
      const auto q = hn::LoadU(d, b + kNibbles + j);
      const auto middle = hn::Set(d, uint8_t{8});
      store_codes(d, hn::Sub(low_nibbles(d, q), middle), codes + j);
      store_codes(d, hn::Sub(shift_right<4>(d, q, 15), middle), codes + 16 + j);
    });
    return codes;
  }
};

struct CodesQ4_1 {
  static constexpr size_t kElements = 32, kBytes = 20, kPart = 32;
  static constexpr bool kLeast = true;
  static constexpr size_t kNibbles = 4, kRun = 16;
  static constexpr float kMiddle = 0;
  static HWY_INLINE void parts(const uint8_t* b, float* scale, float* least) {
    scale[0] = half_value(b);
    least[0] = -half_value(b + 2);
  }
  static HWY_INLINE const int8_t* codes(const uint8_t* b, int8_t* codes, float* scale,
                                        float* least) {
    parts(b, scale, least);
    each_bytes<16>([&](auto d, size_t j) HWY_ATTR {
      const auto q = hn::LoadU(d, b + kNibbles + j);
      store_codes(d, low_nibbles(d, q), codes + j);
      store_codes(d, shift_right<4>(d, q, 15), codes + 16 + j);
    });
    return codes;
  }
};

// Nibbles and fifth bits of a block of 32, less `middle`.
HWY_INLINE void five_bits(const uint8_t* fifth, const uint8_t* q, uint8_t middle, int8_t* codes) {
  uint32_t bits = 0;
  std::memcpy(&bits, fifth, sizeof bits);
  each_bytes<16>([&](auto d, size_t j) HWY_ATTR {
    const auto put = [&](auto nibbles, size_t at) HWY_ATTR {
      const uint64_t from_here = bits >> at;  // LoadMaskBits reads eight bytes
      const auto high =
          hn::IfThenElseZero(hn::LoadMaskBits(d, reinterpret_cast<const uint8_t*>(&from_here)),
                             hn::Set(d, uint8_t{16}));
      store_codes(d, hn::Sub(hn::Or(nibbles, high), hn::Set(d, middle)), codes + at);
    };
    const auto both = hn::LoadU(d, q + j);
    put(low_nibbles(d, both), j);
    put(shift_right<4>(d, both, 15), 16 + j);
  });
}

struct CodesQ5_0 {
  static constexpr size_t kElements = 32, kBytes = 22, kPart = 32;
  static constexpr bool kLeast = false;
  static HWY_INLINE const int8_t* codes(const uint8_t* b, int8_t* codes, float* scale, float*) {
    scale[0] = half_value(b);
    five_bits(b + 2, b + 6, 16, codes);
    return codes;
  }
};

struct CodesQ5_1 {
  static constexpr size_t kElements = 32, kBytes = 24, kPart = 32;
  static constexpr bool kLeast = true;
  static HWY_INLINE const int8_t* codes(const uint8_t* b, int8_t* codes, float* scale,
                                        float* least) {
    scale[0] = half_value(b);
    least[0] = -half_value(b + 2);
    five_bits(b + 4, b + 8, 0, codes);
    return codes;
  }
};

// `n` integers of a byte, times `by`.
template <size_t n, class T>
HWY_INLINE void scaled(const T* HWY_RESTRICT from, float by, float* HWY_RESTRICT to) {
  const hn::CappedTag<float, 8> d;
  const hn::Rebind<T, decltype(d)> d8;
  const hn::Rebind<int32_t, decltype(d)> d32;
  for (size_t i = 0; i < n; i += hn::Lanes(d)) {
    const auto v = hn::ConvertTo(d, hn::PromoteTo(d32, hn::LoadU(d8, from + i)));
    hn::Store(hn::Mul(v, hn::Set(d, by)), d, to + i);
  }
}

// The twelve bytes of a block's part scales, four parts at a time (see part_scale()).
HWY_INLINE void part_scales(const uint8_t* b, float* scale, float* least) {
  uint32_t words[3];
  std::memcpy(words, b + 4, sizeof words);
  const uint32_t scales[2] = {words[0] & 0x3f3f3f3fu,
                              (words[2] & 0x0f0f0f0fu) | (words[0] >> 6 & 0x03030303u) << 4};
  const uint32_t leasts[2] = {words[1] & 0x3f3f3f3fu,
                              (words[2] >> 4 & 0x0f0f0f0fu) | (words[1] >> 6 & 0x03030303u) << 4};
  uint8_t bytes[16];
  std::memcpy(bytes, scales, 8);
  std::memcpy(bytes + 8, leasts, 8);
  scaled<8>(bytes, half_value(b), scale);
  scaled<8>(bytes + 8, half_value(b + 2), least);
}

struct CodesQ4_K {
  static constexpr size_t kElements = 256, kBytes = 144, kPart = 32;
  static constexpr bool kLeast = true;
  static constexpr size_t kNibbles = 16, kRun = 32;
  static constexpr float kMiddle = 0;
  static HWY_INLINE void parts(const uint8_t* b, float* scale, float* least) {
    part_scales(b, scale, least);
  }
  static HWY_INLINE const int8_t* codes(const uint8_t* b, int8_t* codes, float* scale,
                                        float* least) {
    parts(b, scale, least);
    BLEND_UNROLL
    for (size_t pair = 0; pair < 4; ++pair) {
      each_bytes<32>([&](auto d, size_t j) HWY_ATTR {
        const auto q = hn::LoadU(d, b + kNibbles + kRun * pair + j);
        store_codes(d, low_nibbles(d, q), codes + 64 * pair + j);
        store_codes(d, shift_right<4>(d, q, 15), codes + 64 * pair + 32 + j);
      });
    }
    return codes;
  }
};

struct CodesQ5_K {
  static constexpr size_t kElements = 256, kBytes = 176, kPart = 32;
  static constexpr bool kLeast = true;
  static HWY_INLINE const int8_t* codes(const uint8_t* b, int8_t* codes, float* scale,
                                        float* least) {
    part_scales(b, scale, least);
    each_bytes<32>([&](auto d, size_t j) HWY_ATTR {
      const auto bits = hn::LoadU(d, b + 16 + j);
      const auto pair = [&](size_t i, auto first, auto second) HWY_ATTR {
        const auto q = hn::LoadU(d, b + 48 + 32 * i + j);
        store_codes(d, hn::Or(low_nibbles(d, q), first), codes + 64 * i + j);
        store_codes(d, hn::Or(shift_right<4>(d, q, 15), second), codes + 64 * i + 32 + j);
      };
      pair(0, shift_left<4>(d, bits, 16), shift_left<3>(d, bits, 16));
      pair(1, shift_left<2>(d, bits, 16), shift_left<1>(d, bits, 16));
      pair(2, shift_right<0>(d, bits, 16), shift_right<1>(d, bits, 16));
      pair(3, shift_right<2>(d, bits, 16), shift_right<3>(d, bits, 16));
    });
    return codes;
  }
};

struct CodesQ6_K {
  static constexpr size_t kElements = 256, kBytes = 210, kPart = 16;
  static constexpr bool kLeast = false;
  static HWY_INLINE const int8_t* codes(const uint8_t* b, int8_t* codes, float* scale, float*) {
    scaled<16>(reinterpret_cast<const int8_t*>(b + 192), half_value(b + 208), scale);
    BLEND_UNROLL
    for (size_t half = 0; half < 2; ++half) {
      each_bytes<32>([&](auto d, size_t j) HWY_ATTR {
        const auto q0 = hn::LoadU(d, b + 64 * half + j);
        const auto q1 = hn::LoadU(d, b + 64 * half + 32 + j);
        const auto upper = hn::LoadU(d, b + 128 + 32 * half + j);
        const auto run = [&](size_t i, auto nibble, auto high) HWY_ATTR {
          store_codes(d, hn::Sub(hn::Or(nibble, high), hn::Set(d, uint8_t{32})),
                      codes + 128 * half + 32 * i + j);
        };
        run(0, low_nibbles(d, q0), shift_left<4>(d, upper, 48));
        run(1, low_nibbles(d, q1), shift_left<2>(d, upper, 48));
        run(2, shift_right<4>(d, q0, 15), shift_right<0>(d, upper, 48));
        run(3, shift_right<4>(d, q1, 15), shift_right<2>(d, upper, 48));
      });
    }
    return codes;
  }
};

// Nibbles that are an index into kTable. `Plain` is the type's struct in
// formats/weight_codes-inl.h.
template <class Plain, const int8_t (&kValues)[16], size_t kFirst>
struct CodesByTable {
  static constexpr size_t kElements = Plain::kElements, kBytes = Plain::kBytes;
  static constexpr size_t kPart = Plain::kPart;
  static constexpr bool kLeast = false;
  static constexpr size_t kNibbles = kFirst, kRun = 16;
  static constexpr const int8_t (&kTable)[16] = kValues;
  static HWY_INLINE void parts(const uint8_t* b, float* scale, float*) { Plain::scales(b, scale); }
  static HWY_INLINE const int8_t* codes(const uint8_t* b, int8_t* codes, float* scale,
                                        float* least) {
    parts(b, scale, least);
    for (size_t at = 0; at < kElements; at += 32)
      look_up_sixteen(b + kNibbles + at / 2, codes + at);
    return codes;
  }

 private:
  static HWY_INLINE void look_up_sixteen(const uint8_t* q, int8_t* codes) {
    const hn::CappedTag<uint8_t, 16> d;
    if constexpr (hn::MaxLanes(decltype(d)()) == 16) {
      const auto table = hn::LoadU(d, reinterpret_cast<const uint8_t*>(kTable));
      const auto both = hn::LoadU(d, q);
      store_codes(d, hn::TableLookupBytes(table, low_nibbles(d, both)), codes);
      store_codes(d, hn::TableLookupBytes(table, shift_right<4>(d, both, 15)), codes + 16);
    } else {
      look_up(q, 16, kTable, codes);
    }
  }
};
using CodesIQ4_NL = CodesByTable<Iq4Nl, kNonlinear, 2>;
using CodesIQ4_XS = CodesByTable<Iq4Xs, kNonlinear, 8>;
using CodesMXFP4 = CodesByTable<Mxfp4, kE2m1, 1>;

// Sixteen parts of 16 of two bits an element; see two_bits() in formats/weight_codes-inl.h.
// `value(d, quarter, run, j)`: the codes of the elements from j on of a run of 32.
template <class Value>
HWY_INLINE void two_bit_codes(const uint8_t* q, int8_t* codes, Value value) {
  BLEND_UNROLL
  for (size_t half = 0; half < 2; ++half) {
    each_bytes<32>([&](auto d, size_t j) HWY_ATTR {
      const auto bits = hn::LoadU(d, q + 32 * half + j);
      int8_t* const to = codes + 128 * half + j;
      store_codes(d, value(d, shift_right<0>(d, bits, 3), 4 * half, j), to);
      store_codes(d, value(d, shift_right<2>(d, bits, 3), 4 * half + 1, j), to + 32);
      store_codes(d, value(d, shift_right<4>(d, bits, 3), 4 * half + 2, j), to + 64);
      store_codes(d, value(d, shift_right<6>(d, bits, 3), 4 * half + 3, j), to + 96);
    });
  }
}

struct CodesQ2_K {
  static constexpr size_t kElements = 256, kBytes = 84, kPart = 16;
  static constexpr bool kLeast = true;
  static HWY_INLINE const int8_t* codes(const uint8_t* b, int8_t* codes, float* scale,
                                        float* least) {
    HWY_ALIGN uint8_t of_scale[16], of_least[16];
    each_bytes<16>([&](auto d, size_t j) HWY_ATTR {
      const auto both = hn::LoadU(d, b + j);
      hn::Store(low_nibbles(d, both), d, of_scale + j);
      hn::Store(shift_right<4>(d, both, 15), d, of_least + j);
    });
    scaled<16>(of_scale, half_value(b + 80), scale);
    scaled<16>(of_least, half_value(b + 82), least);
    two_bit_codes(b + 16, codes, [](auto, auto bits, size_t, size_t) HWY_ATTR { return bits; });
    return codes;
  }
};

struct CodesQ3_K {
  static constexpr size_t kElements = 256, kBytes = 110, kPart = 16;
  static constexpr bool kLeast = false;
  static HWY_INLINE const int8_t* codes(const uint8_t* b, int8_t* codes, float* scale, float*) {
    uint32_t words[3];
    std::memcpy(words, b + 96, sizeof words);
    constexpr uint32_t kLower = 0x0f0f0f0fu, kUpper = 0x03030303u;
    const uint32_t packed[4] = {(words[0] & kLower) | (words[2] & kUpper) << 4,
                                (words[1] & kLower) | (words[2] >> 2 & kUpper) << 4,
                                (words[0] >> 4 & kLower) | (words[2] >> 4 & kUpper) << 4,
                                (words[1] >> 4 & kLower) | (words[2] >> 6 & kUpper) << 4};
    int8_t signed_scales[16];
    std::memcpy(signed_scales, packed, sizeof packed);
    for (int8_t& s : signed_scales) s = static_cast<int8_t>(s - 32);
    scaled<16>(signed_scales, half_value(b + 108), scale);
    two_bit_codes(b + 32, codes, [b](auto d, auto bits, size_t run, size_t j) HWY_ATTR {
      const auto third = hn::And(hn::LoadU(d, b + j), hn::Set(d, static_cast<uint8_t>(1u << run)));
      const auto less = hn::Eq(third, hn::Zero(d));
      return hn::Sub(bits, hn::IfThenElseZero(less, hn::Set(d, uint8_t{4})));
    });
    return codes;
  }
};

// Room for the scales of a block's parts, or for its least values.
template <class Codes>
constexpr size_t kScales = (Codes::kElements / Codes::kPart + 15) / 16 * 16;

// What the sixteen nibbles stand for, before they are scaled.
template <class Codes>
HWY_INLINE V sixteen_values() {
  const D d;
  if constexpr (requires { Codes::kTable; }) {
    const hn::Rebind<int8_t, D> d8;
    const hn::Rebind<int32_t, D> d32;
    return hn::ConvertTo(d, hn::PromoteTo(d32, hn::LoadU(d8, Codes::kTable)));
  } else {
    return hn::Iota(d, -Codes::kMiddle);
  }
}

// Calls fn with the type's struct above. False: it has none.
template <class Fn>
bool with_vector_codes(BlockType type, Fn fn) {
  switch (type) {
    case BlockType::q4_0:
      return fn(CodesQ4_0()), true;
    case BlockType::q4_1:
      return fn(CodesQ4_1()), true;
    case BlockType::q5_0:
      return fn(CodesQ5_0()), true;
    case BlockType::q5_1:
      return fn(CodesQ5_1()), true;
    case BlockType::q8_0:
      return fn(CodesQ8_0()), true;
    case BlockType::q4_k:
      return fn(CodesQ4_K()), true;
    case BlockType::q5_k:
      return fn(CodesQ5_K()), true;
    case BlockType::q6_k:
      return fn(CodesQ6_K()), true;
    case BlockType::q2_k:
      return fn(CodesQ2_K()), true;
    case BlockType::q3_k:
      return fn(CodesQ3_K()), true;
    case BlockType::iq4_nl:
      return fn(CodesIQ4_NL()), true;
    case BlockType::iq4_xs:
      return fn(CodesIQ4_XS()), true;
    case BlockType::mxfp4:
      return fn(CodesMXFP4()), true;
    default:
      return false;
  }
}

// The other types share one product, which unpacks a block by a call: parts of 16 elements, least
// values always.
inline constexpr size_t kAnyPart = 16, kAnyElements = 256;
using Unpack = void (*)(const uint8_t* b, int8_t* codes, float* scale, float* least);

template <class Plain>
void unpack_parts(const uint8_t* b, int8_t* codes, float* scale, float* least) {
  constexpr size_t kParts = Plain::kElements / Plain::kPart, kEach = Plain::kPart / kAnyPart;
  static_assert(Plain::kPart % kAnyPart == 0 && Plain::kElements <= kAnyElements);
  float scales[kParts], leasts[kParts] = {};
  Plain::unpack(b, codes, scales, leasts);
  for (size_t i = 0; i < kParts * kEach; ++i) {
    scale[i] = scales[i / kEach];
    least[i] = leasts[i / kEach];
  }
}
inline Unpack unpack_of(BlockType type) {
  Unpack unpack = nullptr;
  with_codes(type, [&](auto plain) { unpack = &unpack_parts<decltype(plain)>; });
  return unpack;
}

}  // namespace blend::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
