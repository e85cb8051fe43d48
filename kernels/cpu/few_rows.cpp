#include "cpu/few_rows.h"

#include <hwy/cache_control.h>

#include <algorithm>
#include <bit>
#include <type_traits>
#include <vector>

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

// Rows of W beside rows of x, as sums in registers: 16 where there are 32 registers, else 8. Arm
// has 32, but with more rows of W their addresses and scales no longer fit: GCC's loops had 4 to 5
// instructions for each multiply-add instead of 3 to 4.
constexpr size_t kMostSums = kLanes == 16 ? 16 : 8;
template <size_t kX>
constexpr size_t kWRows = kMostSums / kX < kFewRowsStep ? kMostSums / kX : kFewRowsStep;

// From a row of W to the one to ask for meanwhile. Some rows are read side by side, each for a few
// thousand bytes only, which is too short for the hardware to see what comes; and memory takes as
// long to answer as a core takes for some kilobytes.
template <size_t kW>
HWY_INLINE size_t prefetch_distance(size_t row_bytes) {
  constexpr size_t kAhead = 12 << 10;
  const size_t group = kW * row_bytes;
  return (kAhead / group + 1) * group;
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
  HWY_INLINE void add(const V (&weights)[kW], const float* x, size_t k) {
    BLEND_UNROLL
    for (size_t i = 0; i < kX; ++i) {
      const V xi = hn::LoadU(D(), x + i * k);
      BLEND_UNROLL
      for (size_t w = 0; w < kW; ++w) v[w][i] = hn::MulAdd(weights[w], xi, v[w][i]);
    }
  }
  HWY_INLINE float of(size_t w, size_t i) const {
    return hn::GetLane(hn::SumOfLanes(D(), v[w][i]));
  }
};

// A sum of row j of W and row i of x.
HWY_INLINE void put(const FewRows& p, float sum, size_t j, size_t i) {
  if (p.steps != nullptr) sum *= p.steps[j];
  float& y = p.y[i * p.y_stride + j];
  y = p.accumulate ? y + sum : sum;
}

// Rows of blocks.
template <class Codes>
struct Blocks {
  static size_t row_bytes(size_t k) { return k / Codes::kElements * Codes::kBytes; }

  // Whether a part is so many vectors that its sums are scaled rather than its elements: with four,
  // that is a multiplication of two fewer for one row of x, and as many for four.
  // With least values the sum of x would come on top: slower from four rows on.
  static constexpr bool kScaledAtOnce = !Codes::kLeast && Codes::kPart >= 4 * kLanes;

  static constexpr size_t kScales = (Codes::kElements / Codes::kPart + 15) / 16 * 16;
  // Of kW rows of W.
  template <size_t kW>
  struct Part {
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
  static HWY_INLINE void scaled_at_once(const Part<kW>& part, const float* x, size_t k,
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
          const V xi = hn::LoadU(d, x + i * k + c);
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
  static HWY_INLINE void scaled_one_by_one(const Part<kW>& part, const float* x, size_t k,
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
      sums.add(weights, x + c, k);
    }
  }

  // Rows j .. j + kW of W times rows i .. i + kX of x.
  template <size_t kW, size_t kX>
  static void multiply(const FewRows& p, size_t j, size_t i) {
    constexpr size_t kParts = Codes::kElements / Codes::kPart, kPartBytes = Codes::kBytes / kParts;
    constexpr size_t kPrefetchParts = std::bit_floor(std::max<size_t>(1, 64 / kPartBytes));
    // Aligned parts of L1 for what is not in the block as it is.
    HWY_ALIGN int8_t space[kW][Codes::kElements];
    HWY_ALIGN float scale[kW][kScales], least[kW][kScales];
    const size_t bytes = row_bytes(p.k), ahead = prefetch_distance<kW>(bytes);
    const float* const x = p.x + i * p.k;
    const auto* at = reinterpret_cast<const uint8_t*>(p.w) + j * bytes;
    Sums<kW, kX> sums;
    for (size_t e = 0; e < p.k; e += Codes::kElements, at += Codes::kBytes) {
      const int8_t* codes[kW];
      BLEND_UNROLL
      for (size_t r = 0; r < kW; ++r) {
        codes[r] = Codes::codes(at + r * bytes, space[r], scale[r], least[r]);
      }
      for (size_t part = 0; part < kParts; ++part) {
        if (part % kPrefetchParts == 0) {
          BLEND_UNROLL
          for (size_t r = 0; r < kW; ++r) {
            hwy::Prefetch(at + ahead + r * bytes + part * kPartBytes);
          }
        }
        const float* const at_x = x + e + part * Codes::kPart;
        const Part<kW> here = {codes, part * Codes::kPart, scale, least, part};
        if constexpr (kScaledAtOnce) {
          scaled_at_once(here, at_x, p.k, sums);
        } else {
          scaled_one_by_one(here, at_x, p.k, sums);
        }
      }
    }
    for (size_t n = 0; n < kX; ++n) {
      for (size_t r = 0; r < kW; ++r) put(p, sums.of(r, n), j + r, i + n);
    }
  }
};

// Rows of blocks of four bits an element, where a vector has sixteen lanes: the sixteen values of a
// part are a vector, which nibbles look up. It costs half of what making each value does.
template <class Codes>
struct Nibbles {
  static size_t row_bytes(size_t k) { return Blocks<Codes>::row_bytes(k); }

  template <size_t kW, size_t kX>
  static void multiply(const FewRows& p, size_t j, size_t i) {
    const D d;
    const hn::Rebind<uint8_t, D> d8;
    const hn::Rebind<int32_t, D> d32;
    constexpr size_t kRun = Codes::kRun, kRuns = Codes::kElements / (2 * kRun);
    constexpr size_t kParts = Codes::kElements / Codes::kPart;
    HWY_ALIGN float scale[kW][(kParts + 15) / 16 * 16], least[kW][(kParts + 15) / 16 * 16];
    const size_t bytes = row_bytes(p.k), ahead = prefetch_distance<kW>(bytes);
    const float* const x = p.x + i * p.k;
    const auto* at = reinterpret_cast<const uint8_t*>(p.w) + j * bytes;
    const V ladder = hn::Iota(d, -Codes::kMiddle);
    Sums<kW, kX> sums;
    for (size_t e = 0; e < p.k; e += Codes::kElements, at += Codes::kBytes) {
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
          hwy::Prefetch(at + ahead + r * bytes + run * kRun);
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
          const float* const at_x = x + e + run * 2 * kRun + c;
          sums.add(first, at_x, p.k);
          sums.add(second, at_x + kRun, p.k);
        }
      }
    }
    for (size_t n = 0; n < kX; ++n) {
      for (size_t r = 0; r < kW; ++r) put(p, sums.of(r, n), j + r, i + n);
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
  static void multiply(const FewRows& p, size_t j, size_t i) {
    const D d;
    const hn::Rebind<uint8_t, D> d8;
    const hn::Rebind<int32_t, D> d32;
    const auto high_bits = hn::Set(d32, static_cast<int32_t>(0xF0000000));
    const size_t bytes = row_bytes(p.k), ahead = prefetch_distance<kW>(bytes);
    const float* x = p.x + i * p.k;
    const auto* at = reinterpret_cast<const uint8_t*>(p.w) + j * bytes;
    Sums<kW, kX> sums;
    for (size_t e = 0; e < p.k; e += Codes::kElements, at += Codes::kBytes, x += Codes::kElements) {
      BLEND_UNROLL
      for (size_t r = 0; r < kW; ++r) {
        const uint8_t* const block = at + r * bytes;
        hwy::Prefetch(block + ahead);
        V sum[kX];
        BLEND_UNROLL
        for (size_t c = 0; c < Codes::kRun; c += kLanes) {
          const auto both = hn::Xor(hn::PromoteTo(d32, hn::LoadU(d8, block + Codes::kNibbles + c)),
                                    hn::Set(d32, 0x88));
          const V low = hn::ConvertTo(d, hn::ShiftLeft<28>(both));
          const V high = hn::ConvertTo(d, hn::And(hn::ShiftLeft<24>(both), high_bits));
          BLEND_UNROLL
          for (size_t n = 0; n < kX; ++n) {
            const float* const at_x = x + n * p.k + c;
            const V x_low = hn::LoadU(d, at_x), x_high = hn::LoadU(d, at_x + Codes::kRun);
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
    for (size_t n = 0; n < kX; ++n) {
      for (size_t r = 0; r < kW; ++r) put(p, sums.of(r, n), j + r, i + n);
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
  static void multiply(const FewRows& p, size_t j, size_t i) {
    const size_t bytes = row_bytes(p.k), ahead = prefetch_distance<kW>(bytes);
    const std::byte* const w = p.w + j * bytes;
    const float* const x = p.x + i * p.k;
    Sums<kW, kX> sums;
    size_t e = 0;
    for (; e + kLanes <= p.k; e += kLanes) {
      V weights[kW];
      BLEND_UNROLL
      for (size_t r = 0; r < kW; ++r) {
        const std::byte* const at = w + r * bytes + e * Elements::kSize;
        weights[r] = Elements::load(at);
        hwy::Prefetch(at + ahead);
      }
      sums.add(weights, x + e, p.k);
    }
    for (size_t n = 0; n < kX; ++n) {
      for (size_t r = 0; r < kW; ++r) {
        float sum = sums.of(r, n);
        for (size_t c = e; c < p.k; ++c) {
          sum += Elements::load_one(w + r * bytes + c * Elements::kSize) * x[n * p.k + c];
        }
        put(p, sum, j + r, i + n);
      }
    }
  }
};

// All of W times rows i .. i + kX of x.
template <class Weights, size_t kX>
void all_of_w(const FewRows& p, size_t i) {
  constexpr size_t kW = kWRows<kX>;
  size_t j = 0;
  for (; j + kW <= p.n; j += kW) Weights::template multiply<kW, kX>(p, j, i);
  for (; j < p.n; ++j) {
    for (size_t r = 0; r < kX; ++r) Weights::template multiply<1, 1>(p, j, i + r);
  }
}

template <class Weights>
void all_rows(const FewRows& p) {
  size_t i = 0;
  const auto rows = [&](auto product, size_t n) {
    product(p, i);
    i += n;
  };
  while (i + 4 <= p.m) rows(all_of_w<Weights, 4>, 4);
  while (i + 2 <= p.m) rows(all_of_w<Weights, 2>, 2);
  while (i < p.m) rows(all_of_w<Weights, 1>, 1);
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

void few_rows(const FewRows& product) { HWY_DYNAMIC_DISPATCH(Product)(product); }

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
