#include "cpu/block_decode.h"

#include <cstdint>
#include <cstring>

#include "cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/block_decode.cpp"
#include <hwy/foreach_target.h>
// after foreach_target
#include <hwy/highway.h>

#include "cpu/lanes-inl.h"
#include "cpu/weight_codes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace blend::kernels::HWY_NAMESPACE {
namespace {

// A part's scale and least value as vectors: an element is the same number, to the bit, as a plain
// loop makes of it, so the product and the difference are rounded one after the other.
template <class Codes>
struct PartValues {
  V scale, least;
  HWY_INLINE PartValues(const float* scales, const float* leasts, size_t part)
      : scale(hn::Set(D(), scales[part])), least(hn::Zero(D())) {
    if constexpr (Codes::kLeast) least = hn::Set(D(), leasts[part]);
  }
  HWY_INLINE V of(V code) const {
    const V scaled = hn::Mul(scale, code);
    if constexpr (Codes::kLeast) return hn::Sub(scaled, least);
    return scaled;
  }
};

// A type that is unpacked by plain loops (formats/weight_codes-inl.h).
template <class Plain>
struct PlainCodes : Plain {
  static HWY_INLINE const int8_t* codes(const uint8_t* b, int8_t* codes, float* scale,
                                        float* least) {
    Plain::unpack(b, codes, scale, least);
    return codes;
  }
};

template <class Codes>
void decode_by_codes(const uint8_t* b, size_t n, float* out) {
  const D d;
  const hn::Rebind<int8_t, D> d8;
  const hn::Rebind<int32_t, D> d32;
  static_assert(Codes::kPart % kLanes == 0);
  HWY_ALIGN int8_t space[Codes::kElements];
  HWY_ALIGN float scale[kScales<Codes>], least[kScales<Codes>];
  for (const float* const end = out + n; out != end; b += Codes::kBytes) {
    const int8_t* codes = Codes::codes(b, space, scale, least);
    for (size_t part = 0; part < Codes::kElements / Codes::kPart; ++part) {
      const PartValues<Codes> values(scale, least, part);
      BLEND_UNROLL
      for (size_t c = 0; c < Codes::kPart; c += kLanes, out += kLanes, codes += kLanes) {
        const V code = hn::ConvertTo(d, hn::PromoteTo(d32, hn::LoadU(d8, codes)));
        hn::StoreU(values.of(code), d, out);
      }
    }
  }
}

// The sixteen values of a part are one vector, in which nibbles look up theirs: half the work of
// computing each, where a vector has sixteen lanes.
template <class Codes>
void decode_by_table(const uint8_t* b, size_t n, float* out) {
  const D d;
  const hn::Rebind<uint8_t, D> d8;
  const hn::Rebind<int32_t, D> d32;
  constexpr size_t kRun = Codes::kRun;
  const V ladder = sixteen_values<Codes>();
  HWY_ALIGN float scale[kScales<Codes>], least[kScales<Codes>];
  for (const float* const end = out + n; out != end; b += Codes::kBytes) {
    Codes::parts(b, scale, least);
    const uint8_t* nibbles = b + Codes::kNibbles;
    for (size_t e = 0; e < Codes::kElements; e += 2 * kRun, out += 2 * kRun, nibbles += kRun) {
      const size_t low = e / Codes::kPart, high = (e + kRun) / Codes::kPart;
      const V values_low = PartValues<Codes>(scale, least, low).of(ladder);
      const V values_high =
          low == high ? values_low : PartValues<Codes>(scale, least, high).of(ladder);
      BLEND_UNROLL
      for (size_t c = 0; c < kRun; c += kLanes) {
        const auto both = hn::PromoteTo(d32, hn::LoadU(d8, nibbles + c));
        const auto look_up = [&](V table, auto indices) HWY_ATTR {
          return hn::TableLookupLanes(table, hn::IndicesFromVec(d, indices));
        };
        hn::StoreU(look_up(values_low, hn::And(both, hn::Set(d32, 15))), d, out + c);
        hn::StoreU(look_up(values_high, hn::ShiftRight<4>(both)), d, out + kRun + c);
      }
    }
  }
}

template <class Codes>
void decode_as(const uint8_t* b, size_t n, float* out) {
  if constexpr (kLanes == 16 && requires { Codes::kNibbles; }) {
    decode_by_table<Codes>(b, n, out);
  } else {
    decode_by_codes<Codes>(b, n, out);
  }
}

}  // namespace

// Not by the plain loops of formats/weight_blocks.cpp: of those over nibbles GCC makes vectors of
// four lanes, whatever the instruction set, and a half's conversion takes a dozen instructions.
void DecodeBlocks(BlockType type, const std::byte* data, size_t n, float* out) {
  const auto* const b = reinterpret_cast<const uint8_t*>(data);
  if (with_vector_codes(type, [&](auto codes) { decode_as<decltype(codes)>(b, n, out); })) return;
  with_codes(type, [&](auto plain) { decode_by_codes<PlainCodes<decltype(plain)>>(b, n, out); });
}

}  // namespace blend::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace blend::kernels {

HWY_EXPORT(DecodeBlocks);

void decode_blocks(BlockType type, const std::byte* data, size_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(DecodeBlocks)(type, data, n, out);
}

}  // namespace blend::kernels
#endif  // HWY_ONCE
