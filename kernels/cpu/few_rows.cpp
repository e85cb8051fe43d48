#include "cpu/few_rows.h"

#include <hwy/cache_control.h>

#include <algorithm>
#include <bit>
#include <type_traits>
#include <vector>

#include "cpu/fetch_ahead.h"
#include "cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/few_rows.cpp"
#include <hwy/foreach_target.h>
// after foreach_target
#include <hwy/highway.h>

#include "cpu/half-inl.h"
#include "cpu/lanes-inl.h"
#include "cpu/weight_codes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace blend::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows of W beside rows of x, as sums in registers: 16 where there are 32 registers, else 8. With
// 12, which 16 registers hold, GCC puts some on the stack (Zen 3, in the first-level cache, of the
// peak: 2 rows by 4 86 %, 3 by 4 72 %). Arm has 32, but with more rows of W their addresses and
// scales no longer fit: GCC's loops had 4 to 5 instructions for each multiply-add instead of 3 to
// 4.
constexpr size_t kMostSums = kLanes == 16 ? 16 : 8;
constexpr size_t kWRows = kMostSums / kMostX;
// One row of x or two take the time that W takes to come: more rows of W side by side.
constexpr size_t kMostW = 4;

// With more rows of x, some rows of W go by a part of k at a time, and with them that part of x
// stays in the first-level cache, as all of x would not. The next rows of W are fetched meanwhile,
// in the order in which they lie: asked for in the order in which they are used, a piece of one row
// and then of another, they came no faster than without asking (k = 2048 of f16, 8 rows of x: 5.9
// ms, in order 4.0).
constexpr size_t kGroup = kFewRowsStep;
constexpr size_t kBytesOfX = 24 << 10, kPartUnit = 256;  // of a part; elements of k
// Of a second-level cache of 512 KiB, what groups of W and x may take.
constexpr size_t kBytesOfCache = 384 << 10;

// The rows of W that go by together: fewer where they, those that are fetched and all of x would
// not stay in the second-level cache together. If x alone does not, it comes anew for each group.
HWY_INLINE size_t rows_of_group(size_t row_bytes, size_t x_bytes) {
  constexpr size_t kLeast = 4;
  if (x_bytes >= kBytesOfCache) return kGroup;
  return std::clamp((kBytesOfCache - x_bytes) / (2 * row_bytes) / kLeast * kLeast, kLeast, kGroup);
}

// What is multiplied at a time: elements [first, last) of rows of W from j on and of some of x.
struct Part {
  const float* x;  // [k / kLanes][rows][kLanes]
  size_t j, first, last;
  FetchAhead* fetch;
  size_t ahead;  // bytes from a weight to the one to ask for, where rows of W go by as they lie

  // Whether they do.
  template <size_t kRowsOfW, size_t kX>
  static constexpr bool as_it_lies = kRowsOfW == kMostW&& kX <= 2;
};

using D4 = hn::CappedTag<float, 4>;
template <class Vector>
HWY_INLINE hn::Vec<D4> to_four(Vector v) {
  using Tag = hn::DFromV<Vector>;
  if constexpr (hn::MaxLanes(Tag()) <= 4) {
    return v;
  } else {
    const hn::Half<Tag> dh;
    return to_four(hn::Add(hn::LowerHalf(dh, v), hn::UpperHalf(dh, v)));
  }
}
// Of each, the sum of its lanes, in one order wherever it stands.
HWY_INLINE void sums_of_four(V a, V b, V c, V d, float* to) {
  const D4 d4;
  const auto pairs = [&](auto one, auto other) HWY_ATTR {
    return hn::Add(hn::InterleaveLower(d4, one, other), hn::InterleaveUpper(d4, one, other));
  };
  const auto first = pairs(to_four(a), to_four(b)), second = pairs(to_four(c), to_four(d));
  const auto low = hn::ConcatLowerLower(d4, second, first);
  hn::StoreU(hn::Add(low, hn::ConcatUpperUpper(d4, second, first)), d4, to);
}

// Sums of kW rows of W and kX of x.
template <size_t kW, size_t kX>
struct Sums {
  V v[kW][kX];

  HWY_INLINE Sums() {
    BLEND_UNROLL
    for (size_t w = 0; w < kW; ++w) {
      BLEND_UNROLL
      for (size_t i = 0; i < kX; ++i) v[w][i] = hn::Zero(D());
    }
  }
  // Weights of the columns at which x stands, one vector a row.
  HWY_INLINE void add(const V (&weights)[kW], const float* x) {
    BLEND_UNROLL
    for (size_t i = 0; i < kX; ++i) {
      V xi = hn::LoadU(D(), x + i * kLanes);
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
      __asm__("" : "+v"(xi.raw));  // GCC would load it once for each row of W
#endif
      BLEND_UNROLL
      for (size_t w = 0; w < kW; ++w) v[w][i] = hn::MulAdd(weights[w], xi, v[w][i]);
    }
  }
  HWY_INLINE void load(const float* from) {
    BLEND_UNROLL
    for (size_t n = 0; n < kW * kX; ++n) v[n / kX][n % kX] = hn::Load(D(), from + n * kLanes);
  }
  HWY_INLINE void store(float* to) const {
    BLEND_UNROLL
    for (size_t n = 0; n < kW * kX; ++n) hn::Store(v[n / kX][n % kX], D(), to + n * kLanes);
  }
  // [kX][4]: of the rows of x, the sum with each row of W; of no row behind kW.
  HWY_INLINE void totals(float (&to)[kX][4]) const {
    BLEND_UNROLL
    for (size_t i = 0; i < kX; ++i) {
      sums_of_four(v[0][i], v[kW > 1 ? 1 : 0][i], v[kW > 2 ? 2 : 0][i], v[kW > 3 ? 3 : 0][i],
                   to[i]);
    }
  }
};

// Rows of blocks.
template <class Codes>
struct Blocks {
  static size_t row_bytes(size_t k) { return k / Codes::kElements * Codes::kBytes; }
  template <size_t kW, size_t kX>
  static void add_rest(const FewRows&, const Part&, float (&)[kX][4]) {}

  // Whether a part is so many vectors that its sums are scaled rather than its elements: with four,
  // that is a multiplication of two fewer for one row of x, and as many for four.
  // With least values the sum of x would come on top: slower from four rows on.
  static constexpr bool kScaledAtOnce = !Codes::kLeast && Codes::kPart >= 4 * kLanes;

  static constexpr size_t kScales = (Codes::kElements / Codes::kPart + 15) / 16 * 16;
  // Of kW rows of W.
  template <size_t kW>
  struct BlockPart {
    const int8_t* const (&codes)[kW];
    size_t first;  // of the block's codes
    const float (&scale)[kW][kScales];
    const float (&least)[kW][kScales];
    size_t i;  // of the block's parts

    HWY_INLINE V code(size_t r, size_t c) const {
      const hn::Rebind<int8_t, D> d8;
      const hn::Rebind<int32_t, D> d32;
      return hn::ConvertTo(D(), hn::PromoteTo(d32, hn::LoadU(d8, codes[r] + first + c)));
    }
  };

  template <size_t kW, size_t kX>
  static HWY_INLINE void scaled_at_once(const BlockPart<kW>& part, const float* x,
                                        Sums<kW, kX>& sums) {
    const D d;
    BLEND_UNROLL
    for (size_t r = 0; r < kW; ++r) {
      V sum[kX];
      BLEND_UNROLL
      for (size_t c = 0; c < Codes::kPart; c += kLanes) {
        const V code = part.code(r, c);
        BLEND_UNROLL
        for (size_t i = 0; i < kX; ++i) {
          const V xi = hn::LoadU(d, x + c * kX + i * kLanes);
          sum[i] = c == 0 ? hn::Mul(code, xi) : hn::MulAdd(code, xi, sum[i]);
        }
      }
      const V scale = hn::Set(d, part.scale[r][part.i]);
      BLEND_UNROLL
      for (size_t i = 0; i < kX; ++i) {
        sums.v[r][i] = hn::MulAdd(scale, sum[i], sums.v[r][i]);
      }
    }
  }

  template <size_t kW, size_t kX>
  static HWY_INLINE void scaled_one_by_one(const BlockPart<kW>& part, const float* x,
                                           Sums<kW, kX>& sums) {
    const D d;
    BLEND_UNROLL
    for (size_t c = 0; c < Codes::kPart; c += kLanes) {
      V weights[kW];
      BLEND_UNROLL
      for (size_t r = 0; r < kW; ++r) {
        const V scale = hn::Set(d, part.scale[r][part.i]);
        if constexpr (Codes::kLeast) {
          weights[r] = hn::MulSub(scale, part.code(r, c), hn::Set(d, part.least[r][part.i]));
        } else {
          weights[r] = hn::Mul(scale, part.code(r, c));
        }
      }
      sums.add(weights, x + c * kX);
    }
  }

  template <size_t kW, size_t kX>
  static HWY_INLINE void add(const FewRows& p, const Part& all, Sums<kW, kX>& sums) {
    constexpr size_t kParts = Codes::kElements / Codes::kPart, kPartBytes = Codes::kBytes / kParts;
    constexpr size_t kPrefetchParts = std::bit_floor(std::max<size_t>(1, 64 / kPartBytes));
    // Aligned parts of L1 for what is not in the block as it is.
    HWY_ALIGN int8_t space[kW][Codes::kElements];
    HWY_ALIGN float scale[kW][kScales], least[kW][kScales];
    FetchAhead& fetch = *all.fetch;
    const size_t bytes = row_bytes(p.k);
    const auto* at = reinterpret_cast<const uint8_t*>(p.w) + all.j * bytes + row_bytes(all.first);
    for (size_t e = all.first; e < all.last; e += Codes::kElements, at += Codes::kBytes) {
      const int8_t* codes[kW];
      BLEND_UNROLL
      for (size_t r = 0; r < kW; ++r) {
        codes[r] = Codes::codes(at + r * bytes, space[r], scale[r], least[r]);
      }
      for (size_t part = 0; part < kParts; ++part) {
        if (part % kPrefetchParts != 0) {
        } else if constexpr (Part::as_it_lies<kW, kX>) {
          BLEND_UNROLL
          for (size_t r = 0; r < kW; ++r) {
            hwy::Prefetch(at + all.ahead + r * bytes + part * kPartBytes);
          }
        } else {
          fetch.some_lines();
        }
        const float* const at_x = all.x + (e + part * Codes::kPart) * kX;
        const BlockPart<kW> here = {codes, part * Codes::kPart, scale, least, part};
        if constexpr (kScaledAtOnce) {
          scaled_at_once(here, at_x, sums);
        } else {
          scaled_one_by_one(here, at_x, sums);
        }
      }
    }
  }
};

// Rows of blocks of four bits an element, where a vector has sixteen lanes: the sixteen values of a
// part are a vector, which nibbles look up. It costs half of what making each value does.
template <class Codes>
struct Nibbles {
  static size_t row_bytes(size_t k) { return Blocks<Codes>::row_bytes(k); }
  template <size_t kW, size_t kX>
  static void add_rest(const FewRows&, const Part&, float (&)[kX][4]) {}

  template <size_t kW, size_t kX>
  static HWY_INLINE void add(const FewRows& p, const Part& all, Sums<kW, kX>& sums) {
    const D d;
    const hn::Rebind<uint8_t, D> d8;
    const hn::Rebind<int32_t, D> d32;
    constexpr size_t kRun = Codes::kRun, kRuns = Codes::kElements / (2 * kRun);
    constexpr size_t kParts = Codes::kElements / Codes::kPart;
    HWY_ALIGN float scale[kW][(kParts + 15) / 16 * 16], least[kW][(kParts + 15) / 16 * 16];
    FetchAhead& fetch = *all.fetch;
    const size_t bytes = row_bytes(p.k);
    const auto* at = reinterpret_cast<const uint8_t*>(p.w) + all.j * bytes + row_bytes(all.first);
    const V ladder = hn::Iota(d, -Codes::kMiddle);
    for (size_t e = all.first; e < all.last; e += Codes::kElements, at += Codes::kBytes) {
      BLEND_UNROLL
      for (size_t r = 0; r < kW; ++r) Codes::parts(at + r * bytes, scale[r], least[r]);
      for (size_t run = 0; run < kRuns; ++run) {
        const auto values = [&](size_t r, size_t part) HWY_ATTR {
          const V s = hn::Set(d, scale[r][part]);
          if constexpr (Codes::kLeast) return hn::MulSub(s, ladder, hn::Set(d, least[r][part]));
          return hn::Mul(s, ladder);
        };
        const size_t low_part = run * 2 * kRun / Codes::kPart;
        const size_t high_part = (run * 2 + 1) * kRun / Codes::kPart;
        V low[kW], high[kW];
        BLEND_UNROLL
        for (size_t r = 0; r < kW; ++r) {
          if (Part::as_it_lies<kW, kX>) {
            hwy::Prefetch(at + all.ahead + r * bytes + run * kRun);
          } else if (r == 0) {
            fetch.some_lines();
          }
          low[r] = values(r, low_part);
          high[r] = low_part == high_part ? low[r] : values(r, high_part);
        }
        BLEND_UNROLL
        for (size_t c = 0; c < kRun; c += kLanes) {
          V first[kW], second[kW];
          BLEND_UNROLL
          for (size_t r = 0; r < kW; ++r) {
            const auto both = hn::PromoteTo(
                d32, hn::LoadU(d8, at + r * bytes + Codes::kNibbles + run * kRun + c));
            const auto look_up = [&](V table, auto nibbles) HWY_ATTR {
              return hn::TableLookupLanes(table, hn::IndicesFromVec(d, nibbles));
            };
            first[r] = look_up(low[r], hn::And(both, hn::Set(d32, 15)));
            second[r] = look_up(high[r], hn::ShiftRight<4>(both));
          }
          const float* const at_x = all.x + (e + run * 2 * kRun + c) * kX;
          sums.add(first, at_x);
          sums.add(second, at_x + kRun * kX);
        }
      }
    }
  }
};

// Nibbles of one scale a block with fewer lanes than values: they become numbers in the lanes to
// which their byte was widened, without being stored on the way. Less eight, each is left in the
// uppermost bits, which is 2^28 of it.
template <class Codes>
struct WidenedNibbles {
  static_assert(Codes::kMiddle == 8 && !Codes::kLeast && Codes::kElements == Codes::kPart &&
                Codes::kElements == 2 * Codes::kRun);
  static size_t row_bytes(size_t k) { return Blocks<Codes>::row_bytes(k); }
  template <size_t kW, size_t kX>
  static void add_rest(const FewRows&, const Part&, float (&)[kX][4]) {}

  template <size_t kW, size_t kX>
  static HWY_INLINE void add(const FewRows& p, const Part& all, Sums<kW, kX>& sums) {
    const D d;
    const hn::Rebind<uint8_t, D> d8;
    const hn::Rebind<int32_t, D> d32;
    const auto high_bits = hn::Set(d32, static_cast<int32_t>(0xF0000000));
    FetchAhead& fetch = *all.fetch;
    const size_t bytes = row_bytes(p.k);
    const float* x = all.x + all.first * kX;
    const auto* at = reinterpret_cast<const uint8_t*>(p.w) + all.j * bytes + row_bytes(all.first);
    for (size_t e = all.first; e < all.last;
         e += Codes::kElements, at += Codes::kBytes, x += Codes::kElements * kX) {
      BLEND_UNROLL
      for (size_t r = 0; r < kW; ++r) {
        const uint8_t* const block = at + r * bytes;
        if (Part::as_it_lies<kW, kX>) {
          hwy::Prefetch(block + all.ahead);
        } else if (r == 0) {
          fetch.some_lines();
        }
        V sum[kX];
        BLEND_UNROLL
        for (size_t c = 0; c < Codes::kRun; c += kLanes) {
          const auto both = hn::Xor(hn::PromoteTo(d32, hn::LoadU(d8, block + Codes::kNibbles + c)),
                                    hn::Set(d32, 0x88));
          const V low = hn::ConvertTo(d, hn::ShiftLeft<28>(both));
          const V high = hn::ConvertTo(d, hn::And(hn::ShiftLeft<24>(both), high_bits));
          BLEND_UNROLL
          for (size_t n = 0; n < kX; ++n) {
            const float* const at_x = x + c * kX + n * kLanes;
            const V x_low = hn::LoadU(d, at_x), x_high = hn::LoadU(d, at_x + Codes::kRun * kX);
            sum[n] = c == 0 ? hn::Mul(low, x_low) : hn::MulAdd(low, x_low, sum[n]);
            sum[n] = hn::MulAdd(high, x_high, sum[n]);
          }
        }
        float scale, least;
        Codes::parts(block, &scale, &least);
        const V of_block = hn::Set(d, scale * 0x1p-28F);
        BLEND_UNROLL
        for (size_t n = 0; n < kX; ++n) {
          sums.v[r][n] = hn::MulAdd(of_block, sum[n], sums.v[r][n]);
        }
      }
    }
  }
};

template <class Codes, class Otherwise>
using FourBits = std::conditional_t<kLanes == 16, Nibbles<Codes>, Otherwise>;

// Elements of f32, f16 or bf16.
template <DType kType>
struct Floats {
  static constexpr size_t kSize = kType == DType::f32 ? 4 : 2;
  static HWY_INLINE V load(const std::byte* at) { return load_f32<kType>(D(), at); }
  static HWY_INLINE float load_one(const std::byte* at) { return load_f32_scalar<kType>(at); }
};
// Integers, whose step is the row's.
struct Integers {
  static constexpr size_t kSize = 1;
  static HWY_INLINE V load(const std::byte* at) {
    const hn::Rebind<int8_t, D> d8;
    const hn::Rebind<int32_t, D> d32;
    const auto bytes = hn::LoadU(d8, reinterpret_cast<const int8_t*>(at));
    return hn::ConvertTo(D(), hn::PromoteTo(d32, bytes));
  }
  static HWY_INLINE float load_one(const std::byte* at) { return static_cast<int8_t>(*at); }
};

// Rows of elements one by one.
template <class Elements>
struct Plain {
  static size_t row_bytes(size_t k) { return k * Elements::kSize; }

  template <size_t kW, size_t kX>
  static HWY_INLINE void add(const FewRows& p, const Part& all, Sums<kW, kX>& sums) {
    constexpr size_t kLine = 64 / Elements::kSize / kLanes;  // of vectors
    const size_t bytes = row_bytes(p.k);
    const std::byte* w = p.w + all.j * bytes + all.first * Elements::kSize;
    const float* x = all.x + all.first * kX;
    constexpr bool kAsItLies = Part::as_it_lies<kW, kX>;
    FetchAhead fetch = *all.fetch;
    const auto step = [&](size_t n) HWY_ATTR {
      V weights[kW];
      BLEND_UNROLL
      for (size_t r = 0; r < kW; ++r) {
        const std::byte* const at = w + r * bytes + n * kLanes * Elements::kSize;
        weights[r] = Elements::load(at);
        if constexpr (kAsItLies) hwy::Prefetch(at + all.ahead);
      }
      sums.add(weights, x + n * kLanes * kX);
    };
    size_t left = (all.last - all.first) / kLanes;
#pragma GCC unroll 1
    for (; left >= kLine; left -= kLine, w += 64, x += kLine * kLanes * kX) {
      if constexpr (!kAsItLies) fetch.some_lines();
      BLEND_UNROLL
      for (size_t n = 0; n < kLine; ++n) step(n);
    }
    *all.fetch = fetch;
#pragma GCC unroll 1
    for (; left > 0; --left, w += kLanes * Elements::kSize, x += kLanes * kX) step(0);
  }
  // The elements that are no whole vector.
  template <size_t kW, size_t kX>
  static HWY_INLINE void add_rest(const FewRows& p, const Part& part, float (&sums)[kX][4]) {
    for (size_t e = p.k / kLanes * kLanes; e < p.k; ++e) {
      for (size_t n = 0; n < kX; ++n) {
        const float xe = part.x[e / kLanes * kLanes * kX + n * kLanes + e % kLanes];
        for (size_t r = 0; r < kW; ++r) {
          const std::byte* const row = p.w + (part.j + r) * row_bytes(p.k);
          sums[n][r] += Elements::load_one(row + e * Elements::kSize) * xe;
        }
      }
    }
  }
};

// The part's sums go on where those of the parts before it ended, `kept`, and end there or in y.
template <class Weights, size_t kW, size_t kX>
void multiply(const FewRows& p, const Part& part, size_t i, float* kept) {
  Sums<kW, kX> sums;
  if (part.first != 0) sums.load(kept);
  Weights::add(p, part, sums);
  if (part.last != p.k) {
    sums.store(kept);
    return;
  }
  float totals[kX][4];
  sums.totals(totals);
  Weights::template add_rest<kW, kX>(p, part, totals);
  float* y = p.y + i * p.y_stride + part.j;
  for (size_t n = 0; n < kX; ++n, y += p.y_stride) {
    for (size_t r = 0; r < kW; ++r) {
      float sum = totals[n][r];
      if (p.steps != nullptr) sum *= p.steps[part.j + r];
      y[r] = p.accumulate ? y[r] + sum : sum;
    }
  }
}

// From a row of W to the one to ask for meanwhile, where they go by as they lie. Some rows are read
// side by side, each for a few thousand bytes only, which is too short for the hardware to see what
// comes; and memory takes as long to answer as a core takes for some kilobytes.
size_t prefetch_distance(size_t group) {
  constexpr size_t kAhead = 12 << 10;
  return (kAhead / group + 1) * group;
}

// kRowsOfW rows of W times all of x.
template <class Weights, size_t kRowsOfW>
void times_all(const FewRows& p, Part part, float* kept) {
  const size_t k = few_rows_padded(p.k);
  for (size_t i = 0; i < p.m;) {
    const auto rows = [&](auto n) {
      constexpr size_t kX = decltype(n)::value;
      multiply<Weights, kRowsOfW, kX>(p, part, i, kept);
      part.x += k * kX;
      kept += kRowsOfW * kX * kLanes;
      i += kX;
    };
    static_assert(kMostX == 4);
    switch (few_rows_beside(p.m, i)) {
      case 1:
        rows(std::integral_constant<size_t, 1>());
        break;
      case 2:
        rows(std::integral_constant<size_t, 2>());
        break;
      case 3:
        rows(std::integral_constant<size_t, 3>());
        break;
      default:
        rows(std::integral_constant<size_t, 4>());
        break;
    }
  }
}

// Rows of W from part.j to `end`, kRowsOfW at a time. kept: their sums, [end - j][m][kLanes]
template <class Weights, size_t kRowsOfW>
void some_of_w(const FewRows& p, Part part, size_t end, float* kept) {
  for (; part.j + kRowsOfW <= end; part.j += kRowsOfW, kept += kRowsOfW * p.m * kLanes) {
    times_all<Weights, kRowsOfW>(p, part, kept);
  }
  for (; part.j < end; ++part.j, kept += p.m * kLanes) times_all<Weights, 1>(p, part, kept);
}

template <class Weights>
void all_rows(const FewRows& p) {
  HWY_ALIGN float sums[kGroup * kFewRowsMost * kLanes];
  const size_t bytes = Weights::row_bytes(p.k);
  const bool as_it_lies = p.m <= 2;
  const size_t units = std::max<size_t>(1, kBytesOfX / (p.m * sizeof(float) * kPartUnit));
  const size_t depth = as_it_lies ? p.k : units * kPartUnit;
  const size_t ahead = as_it_lies ? prefetch_distance(kMostW * bytes) : 0;
  const size_t groups_of_x = (p.m + kMostX - 1) / kMostX;
  const size_t group = rows_of_group(bytes, p.m * p.k * sizeof(float));
  for (size_t j = 0; j < p.n; j += group) {
    const size_t end = std::min(p.n, j + group);
    FetchAhead fetch;
    if (!as_it_lies) {  // what lies behind the last group is the next piece's
      const auto* const next = reinterpret_cast<const char*>(p.w) + (j + group) * bytes;
      fetch = {next, next + group * bytes, std::max<size_t>(1, kWRows / groups_of_x) * 64};
    }
    for (size_t first = 0; first < p.k; first += depth) {
      const Part part = {p.x, j, first, std::min(p.k, first + depth), &fetch, ahead};
      if (as_it_lies) {
        some_of_w<Weights, kMostW>(p, part, end, sums);
      } else {
        some_of_w<Weights, kWRows>(p, part, end, sums);
      }
    }
  }
}

void Pack(const float* x, size_t m, size_t k, size_t group, size_t n_groups, float* packed) {
  const size_t padded = few_rows_padded(k);
  size_t i = few_rows_first(m, group);
  for (size_t g = 0; g < n_groups; ++g) {
    const size_t n = few_rows_beside(m, i);
    for (size_t r = 0; r < n; ++r, ++i) {
      const float* const row = x + i * k;
      float* const to = packed + (i - r) * padded + r * kLanes;
      size_t e = 0;
      for (; e + kLanes <= k; e += kLanes) hn::StoreU(hn::LoadU(D(), row + e), D(), to + e * n);
      for (size_t c = e; c < k; ++c) to[e * n + (c - e)] = row[c];
    }
  }
}

void Product(const FewRows& p) {
  if (p.steps != nullptr) return all_rows<Plain<Integers>>(p);
  switch (p.blocks) {
    case BlockType::none:
      if (p.dtype == DType::f32) return all_rows<Plain<Floats<DType::f32>>>(p);
      if (p.dtype == DType::f16) return all_rows<Plain<Floats<DType::f16>>>(p);
      return all_rows<Plain<Floats<DType::bf16>>>(p);
    case BlockType::q4_0:
      return all_rows<FourBits<CodesQ4_0, WidenedNibbles<CodesQ4_0>>>(p);
    case BlockType::q4_1:
      return all_rows<FourBits<CodesQ4_1, Blocks<CodesQ4_1>>>(p);
    case BlockType::q5_0:
      return all_rows<Blocks<CodesQ5_0>>(p);
    case BlockType::q5_1:
      return all_rows<Blocks<CodesQ5_1>>(p);
    case BlockType::q8_0:
      return all_rows<Blocks<CodesQ8_0>>(p);
    case BlockType::q4_k:
      return all_rows<FourBits<CodesQ4_K, Blocks<CodesQ4_K>>>(p);
    case BlockType::q5_k:
      return all_rows<Blocks<CodesQ5_K>>(p);
    case BlockType::q6_k:
      return all_rows<Blocks<CodesQ6_K>>(p);
  }
}

}  // namespace blend::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace blend::kernels {

HWY_EXPORT(Product);
HWY_EXPORT(Pack);

void few_rows(const FewRows& product) { HWY_DYNAMIC_DISPATCH(Product)(product); }
void few_rows_pack(const float* x, size_t m, size_t k, size_t group, size_t n_groups,
                   float* packed) {
  HWY_DYNAMIC_DISPATCH(Pack)(x, m, k, group, n_groups, packed);
}

void few_rows_ref(const FewRows& p) {
  const size_t bytes = p.steps != nullptr ? p.k : weight_row_bytes(p.dtype, p.blocks, p.k);
  std::vector<float> row(p.k);
  for (size_t j = 0; j < p.n; ++j) {
    const std::byte* const w = p.w + j * bytes;
    if (p.steps == nullptr) {
      decode_weights(p.dtype, p.blocks, w, p.k, row.data());
    } else {
      for (size_t e = 0; e < p.k; ++e) row[e] = static_cast<int8_t>(w[e]) * p.steps[j];
    }
    for (size_t i = 0; i < p.m; ++i) {
      float& y = p.y[i * p.y_stride + j];
      double sum = p.accumulate ? static_cast<double>(y) : 0;
      for (size_t e = 0; e < p.k; ++e) {
        sum += static_cast<double>(p.x[i * p.k + e]) * static_cast<double>(row[e]);
      }
      y = static_cast<float>(sum);
    }
  }
}

}  // namespace blend::kernels
#endif  // HWY_ONCE
