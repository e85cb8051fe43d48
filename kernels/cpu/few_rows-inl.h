// The products of the GEMM of few rows (few_rows.h): weights of every type, decoded in registers.
//
// Included once per SIMD target; see few_rows.cpp.
#if defined(BLEND_KERNELS_FEW_ROWS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef BLEND_KERNELS_FEW_ROWS_INL_H
#undef BLEND_KERNELS_FEW_ROWS_INL_H
#else
#define BLEND_KERNELS_FEW_ROWS_INL_H
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cpu/fetch_ahead.h"
#include "cpu/few_rows.h"
#include "cpu/half-inl.h"
#include "cpu/lanes-inl.h"
#include "cpu/simd.h"
#include "cpu/weight_codes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace blend::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows of W and rows of x at a time, by the registers for sums, of which AVX2 has 16: 2 by 6 leave
// one for the vector of x. With 3 by 4 there is none, and GCC puts some on the stack (Zen 3, in the
// first-level cache, of the peak: 2 by 4 86 %, 3 by 4 72 %). AVX-512 and Arm have 32. There a
// weight should be decoded for many rows of x (a Zen 5 core with AVX-512, 24 rows, k = 2048,
// GFLOP/s with 4 by 4, 2 by 8, 3 by 8 and 2 by 12: Q4_1 158, 174, 160, 151; Q5_0 126, 170, 155,
// 149; Q6_K 148, 173, 166, 155; f16 178, 177, 160, 160). On Arm with more rows of W their addresses
// and scales no longer fit: GCC's loops had 4 to 5 instructions for each multiply-add instead of 3
// to 4.
constexpr size_t kMostX = kLanes == 16 ? 8 : kLanes == 8 ? 6 : 4;
constexpr size_t kWRows = 2;
// One row of x or two take as long as W takes to load: more rows of W in parallel.
constexpr size_t kMostW = 4;
// For elements of 16 bits two, which is nearer to the order of W itself, in which memory is
// fastest. Two are enough for multiply-adds that wait for each other; with one they are not. (A Zen
// 5 core with AVX-512, f16 in a mapped file, generation of the 135M and 1B shapes: 157 and 16.9
// tokens/s, with four rows 115 and 14.3.) For elements of 8 bits two where rows are short: a Zen 4
// core with AVX-512, k = 1024, 53 GFLOP/s, with four rows 40.
constexpr size_t kFewerW = 2;

// A piece of the product: elements [first, last) of rows of W from j on and of some of x.
struct Part {
  const float* x;  // [k / kLanes][rows][kLanes]
  size_t j, first, last;
  FetchAhead* fetch;
  // Where whole rows of W are read at once: how many bytes ahead is prefetched, and in which order.
  // Where they are not, it is 0, and `fetch` says what is prefetched.
  size_t ahead = 0;
  bool in_order = false;

  template <size_t kRowsOfW, size_t kX>
  HWY_INLINE bool at_once() const {
    return kX <= 2 && kRowsOfW > 1 && ahead != 0;
  }
};

// Prefetches what lies `ahead` of kW parallel rows of W: in the order in which it lies, whatever
// the order of use, or side by side as it will be used.
template <size_t kW>
struct Ahead {
  const uint8_t* next;
  bool in_order;
  size_t row_bytes;

  Ahead(const FewRows& p, const Part& part, size_t bytes)
      : next(reinterpret_cast<const uint8_t*>(p.w) + part.j * bytes + part.ahead),
        in_order(part.in_order),
        row_bytes(bytes) {}
  // As much as a step uses: kBytes of each row.
  template <size_t kBytes>
  HWY_INLINE void step() {
    static_assert(kBytes <= 64);
    BLEND_UNROLL
    for (size_t r = 0; r < kW; ++r) hwy::Prefetch(next + r * (in_order ? kBytes : row_bytes));
    next += in_order ? kW * kBytes : kBytes;
  }
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
// The sum of the lanes of each, in one order wherever it is.
HWY_INLINE void sums_of_four(V a, V b, V c, V d, float* to) {
  const D4 d4;
  const auto pairs = [&](auto one, auto other) HWY_ATTR {
    return hn::Add(hn::InterleaveLower(d4, one, other), hn::InterleaveUpper(d4, one, other));
  };
  const auto first = pairs(to_four(a), to_four(b)), second = pairs(to_four(c), to_four(d));
  const auto low = hn::ConcatLowerLower(d4, second, first);
  hn::StoreU(hn::Add(low, hn::ConcatUpperUpper(d4, second, first)), d4, to);
}

HWY_INLINE void in_register(V& v) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  __asm__("" : "+v"(v.raw));
#else
  (void)v;
#endif
}
// sum += a b. GCC lets the sum go on in the register of a factor that is no longer needed, and
// where all registers are in use it then moves others to the stack and back.
HWY_INLINE void add_product(V a, V b, V& sum) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  auto raw = sum.raw;  // a copy: the sums themselves would not stay in registers
  __asm__("vfmadd231ps %2, %1, %0" : "+v"(raw) : "v"(a.raw), "v"(b.raw));
  sum.raw = raw;
#else
  sum = hn::MulAdd(a, b, sum);
#endif
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
  // Weights of the columns at which x is, one vector a row.
  HWY_INLINE void add(const V (&weights)[kW], const float* x) {
    BLEND_UNROLL
    for (size_t i = 0; i < kX; ++i) {
      V xi = hn::LoadU(D(), x + i * kLanes);
      in_register(xi);  // GCC would load it once for each row of W
      BLEND_UNROLL
      for (size_t w = 0; w < kW; ++w) add_product(weights[w], xi, v[w][i]);
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
  // [kX][4]: for each row of x, the sum with each row of W; entries from kW on are unused.
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
  static size_t row_bytes(const FewRows&, size_t k) { return k / Codes::kElements * Codes::kBytes; }
  template <size_t kW, size_t kX>
  static void add_rest(const FewRows&, const Part&, float (&)[kX][4]) {}

  // Whether a part has enough vectors to scale its sums rather than its elements: with four,
  // that saves nearly every second multiplication for one row of x, and none for four.
  // With least values the sum of x would come on top: slower from four rows on.
  static constexpr bool kScaledAtOnce = !Codes::kLeast && Codes::kPart >= 4 * kLanes;

  // kW rows of W.
  template <size_t kW>
  struct BlockPart {
    const int8_t* const (&codes)[kW];
    size_t first;  // of the block's codes
    const float (&scale)[kW][kScales<Codes>];
    const float (&least)[kW][kScales<Codes>];
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
    // Aligned parts of L1 for codes that must be unpacked from the block.
    HWY_ALIGN int8_t space[kW][Codes::kElements];
    HWY_ALIGN float scale[kW][kScales<Codes>], least[kW][kScales<Codes>];
    FetchAhead& fetch = *all.fetch;
    const size_t bytes = row_bytes(p, p.k);
    Ahead<kW> ahead(p, all, bytes);
    const auto* at =
        reinterpret_cast<const uint8_t*>(p.w) + all.j * bytes + row_bytes(p, all.first);
    for (size_t e = all.first; e < all.last; e += Codes::kElements, at += Codes::kBytes) {
      const int8_t* codes[kW];
      BLEND_UNROLL
      for (size_t r = 0; r < kW; ++r) {
        codes[r] = Codes::codes(at + r * bytes, space[r], scale[r], least[r]);
      }
      for (size_t part = 0; part < kParts; ++part) {
        if (part % kPrefetchParts != 0) {
        } else if (all.at_once<kW, kX>()) {
          ahead.template step<kPrefetchParts * kPartBytes>();
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

// The elements of `table` that the lowest four bits of each lane name. AVX-512 looks at no others.
HWY_INLINE V of_sixteen(V table, hn::Vec<hn::Rebind<int32_t, D>> places) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  return hn::TableLookupLanes(table, hn::Indices512<float>{places.raw});
#else
  const hn::Rebind<int32_t, D> d32;
  return hn::TableLookupLanes(table, hn::IndicesFromVec(D(), hn::And(places, hn::Set(d32, 15))));
#endif
}

// Rows of blocks of four bits an element, where a vector has sixteen lanes: the sixteen values of a
// part are a vector that nibbles index. It costs half as much as computing each value.
template <class Codes>
struct Nibbles {
  static size_t row_bytes(const FewRows& p, size_t k) { return Blocks<Codes>::row_bytes(p, k); }
  template <size_t kW, size_t kX>
  static void add_rest(const FewRows&, const Part&, float (&)[kX][4]) {}

  template <size_t kW, size_t kX>
  static HWY_INLINE void add(const FewRows& p, const Part& all, Sums<kW, kX>& sums) {
    const D d;
    const hn::Rebind<uint8_t, D> d8;
    const hn::Rebind<int32_t, D> d32;
    constexpr size_t kRun = Codes::kRun, kRuns = Codes::kElements / (2 * kRun);
    HWY_ALIGN float scale[kW][kScales<Codes>], least[kW][kScales<Codes>];
    FetchAhead& fetch = *all.fetch;
    const size_t bytes = row_bytes(p, p.k);
    const auto* at =
        reinterpret_cast<const uint8_t*>(p.w) + all.j * bytes + row_bytes(p, all.first);
    Ahead<kW> ahead(p, all, bytes);
    const V ladder = sixteen_values<Codes>();
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
        if (all.at_once<kW, kX>()) {
          ahead.template step<Codes::kBytes / kRuns>();
        } else {
          fetch.some_lines();
        }
        BLEND_UNROLL
        for (size_t r = 0; r < kW; ++r) {
          low[r] = values(r, low_part);
          if constexpr (Codes::kPart >= 2 * kRun) {
            high[r] = low[r];  // both halves of a byte belong to one part
          } else {
            high[r] = values(r, high_part);
          }
        }
        BLEND_UNROLL
        for (size_t c = 0; c < kRun; c += kLanes) {
          V first[kW], second[kW];
          BLEND_UNROLL
          for (size_t r = 0; r < kW; ++r) {
            const auto both = hn::PromoteTo(
                d32, hn::LoadU(d8, at + r * bytes + Codes::kNibbles + run * kRun + c));
            first[r] = of_sixteen(low[r], both);
            second[r] = of_sixteen(high[r], hn::ShiftRight<4>(both));
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
// which their byte was widened, without being stored in between. Less eight, each is left in the
// uppermost bits, which is 2^28 of it.
template <class Codes>
struct WidenedNibbles {
  static_assert(Codes::kMiddle == 8 && !Codes::kLeast && Codes::kElements == Codes::kPart &&
                Codes::kElements == 2 * Codes::kRun);
  static size_t row_bytes(const FewRows& p, size_t k) { return Blocks<Codes>::row_bytes(p, k); }
  template <size_t kW, size_t kX>
  static void add_rest(const FewRows&, const Part&, float (&)[kX][4]) {}

  template <size_t kW, size_t kX>
  static HWY_INLINE void add(const FewRows& p, const Part& all, Sums<kW, kX>& sums) {
    const D d;
    const hn::Rebind<uint8_t, D> d8;
    const hn::Rebind<int32_t, D> d32;
    const auto high_bits = hn::Set(d32, static_cast<int32_t>(0xF0000000));
    FetchAhead& fetch = *all.fetch;
    const size_t bytes = row_bytes(p, p.k);
    Ahead<kW> ahead(p, all, bytes);
    const float* x = all.x + all.first * kX;
    const auto* at =
        reinterpret_cast<const uint8_t*>(p.w) + all.j * bytes + row_bytes(p, all.first);
    for (size_t e = all.first; e < all.last;
         e += Codes::kElements, at += Codes::kBytes, x += Codes::kElements * kX) {
      if (all.at_once<kW, kX>()) {
        ahead.template step<Codes::kBytes>();
      } else {
        fetch.some_lines();
      }
      BLEND_UNROLL
      for (size_t r = 0; r < kW; ++r) {
        const uint8_t* const block = at + r * bytes;
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

// Rows of blocks of any type of formats/weight_codes-inl.h.
struct AnyBlocks {
  static size_t row_bytes(const FewRows& p, size_t k) {
    return weight_row_bytes(p.dtype, p.blocks, k);
  }
  template <size_t kW, size_t kX>
  static void add_rest(const FewRows&, const Part&, float (&)[kX][4]) {}

  template <size_t kW, size_t kX>
  static HWY_INLINE void add(const FewRows& p, const Part& all, Sums<kW, kX>& sums) {
    constexpr size_t kParts = kAnyElements / kAnyPart;
    const D d;
    const hn::Rebind<int8_t, D> d8;
    const hn::Rebind<int32_t, D> d32;
    HWY_ALIGN int8_t codes[kW][kAnyElements];
    float scale[kW][kParts], least[kW][kParts];
    FetchAhead& fetch = *all.fetch;
    const size_t elements = block_elements(p.blocks), block = block_bytes(p.blocks);
    const Unpack unpack = unpack_of(p.blocks);
    const size_t bytes = row_bytes(p, p.k);
    const auto* at =
        reinterpret_cast<const uint8_t*>(p.w) + all.j * bytes + row_bytes(p, all.first);
    for (size_t e = all.first; e < all.last; e += elements, at += block) {
      for (size_t r = 0; r < kW; ++r) {
        unpack(at + r * bytes, codes[r], scale[r], least[r]);
        if (!all.at_once<kW, kX>()) continue;
        for (size_t line = 0; line < block; line += 64) {
          hwy::Prefetch(at + all.ahead + r * bytes + line);
        }
      }
      if (!all.at_once<kW, kX>()) fetch.some_lines();
      for (size_t part = 0; part < elements / kAnyPart; ++part) {
        const float* const x = all.x + (e + part * kAnyPart) * kX;
        BLEND_UNROLL
        for (size_t c = 0; c < kAnyPart; c += kLanes) {
          V weights[kW];
          BLEND_UNROLL
          for (size_t r = 0; r < kW; ++r) {
            const auto bytes_of = hn::LoadU(d8, codes[r] + part * kAnyPart + c);
            weights[r] = hn::MulSub(hn::Set(d, scale[r][part]),
                                    hn::ConvertTo(d, hn::PromoteTo(d32, bytes_of)),
                                    hn::Set(d, least[r][part]));
          }
          sums.add(weights, x + c * kX);
        }
      }
    }
  }
};

// How rows of a type that has vector codes are multiplied.
template <class Codes>
struct BestFor {
  static auto best() {
    if constexpr (kLanes == 16 && requires { Codes::kNibbles; }) {
      return Nibbles<Codes>();
    } else if constexpr (std::is_same_v<Codes, CodesQ4_0>) {
      return WidenedNibbles<Codes>();
    } else {
      return Blocks<Codes>();
    }
  }
  using Type = decltype(best());
};

// Elements of f32, f16 or bf16.
template <DType kType>
struct Floats {
  static constexpr size_t kSize = kType == DType::f32 ? 4 : 2;
  static HWY_INLINE V load(const std::byte* at) { return load_f32<kType>(D(), at); }
  static HWY_INLINE float load_one(const std::byte* at) { return load_f32_scalar<kType>(at); }
};
// Integers with one scale a row.
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

// Number of parallel rows of W where whole ones are read at once.
template <class Weights, size_t kX>
constexpr size_t kShortRows = kMostW;
template <class Weights, size_t kX>
constexpr size_t kLongRows = kMostW;
template <class Elements>
struct Plain;
template <class Elements, size_t kX>
constexpr size_t kShortRows<Plain<Elements>, kX> =
    kLanes == 16 && Elements::kSize <= 2 && kX == 1 ? kFewerW : kMostW;
template <class Elements, size_t kX>
constexpr size_t kLongRows<Plain<Elements>, kX> =
    kLanes == 16 && Elements::kSize == 2 && kX == 1 ? kFewerW : kMostW;

// Rows of elements one by one.
template <class Elements>
struct Plain {
  static size_t row_bytes(const FewRows&, size_t k) { return k * Elements::kSize; }

  template <size_t kW, size_t kX>
  static HWY_INLINE void add(const FewRows& p, const Part& all, Sums<kW, kX>& sums) {
    constexpr size_t kLine = 64 / Elements::kSize / kLanes;  // of vectors
    const size_t bytes = row_bytes(p, p.k);
    const std::byte* w = p.w + all.j * bytes + all.first * Elements::kSize;
    const float* x = all.x + all.first * kX;
    FetchAhead fetch = *all.fetch;
    Ahead<kW> ahead(p, all, bytes);
    const auto step = [&](size_t n) HWY_ATTR {
      V weights[kW];
      BLEND_UNROLL
      for (size_t r = 0; r < kW; ++r) {
        const std::byte* const at = w + r * bytes + n * kLanes * Elements::kSize;
        weights[r] = Elements::load(at);
        if (all.at_once<kW, kX>()) {
          if (!all.in_order) hwy::Prefetch(at + all.ahead);
        }
      }
      sums.add(weights, x + n * kLanes * kX);
    };
    size_t left = (all.last - all.first) / kLanes;
#pragma GCC unroll 1
    for (; left >= kLine; left -= kLine, w += 64, x += kLine * kLanes * kX) {
      if (all.at_once<kW, kX>()) {
        if (all.in_order) ahead.template step<64>();
      } else {
        fetch.some_lines();
      }
      BLEND_UNROLL
      for (size_t n = 0; n < kLine; ++n) step(n);
    }
    *all.fetch = fetch;
#pragma GCC unroll 1
    for (; left > 0; --left, w += kLanes * Elements::kSize, x += kLanes * kX) step(0);
  }
  // The elements after the last whole vector.
  template <size_t kW, size_t kX>
  static HWY_INLINE void add_rest(const FewRows& p, const Part& part, float (&sums)[kX][4]) {
    for (size_t e = p.k / kLanes * kLanes; e < p.k; ++e) {
      for (size_t n = 0; n < kX; ++n) {
        const float xe = part.x[e / kLanes * kLanes * kX + n * kLanes + e % kLanes];
        for (size_t r = 0; r < kW; ++r) {
          const std::byte* const row = p.w + (part.j + r) * row_bytes(p, p.k);
          sums[n][r] += Elements::load_one(row + e * Elements::kSize) * xe;
        }
      }
    }
  }
};

}  // namespace blend::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
