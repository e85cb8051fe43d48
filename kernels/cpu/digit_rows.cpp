#include "cpu/digit_rows.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#include "cpu/digit_rows_dot.h"
#include "cpu/isa.h"
#include "cpu/simd.h"
#include "formats/half.h"
#include "formats/weight_blocks.h"
#include "formats/weight_grids.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/digit_rows.cpp"
#include <hwy/foreach_target.h>
// after foreach_target
#include <hwy/highway.h>

// With AVX-512 but no VNNI it was not measured.
#undef BLEND_DIGITS
#if HWY_ARCH_X86 && HWY_TARGET == HWY_AVX2
#define BLEND_DIGITS 1
#include <immintrin.h>
#else
#define BLEND_DIGITS 0
#endif

HWY_BEFORE_NAMESPACE();
namespace blend::kernels::HWY_NAMESPACE {

#if BLEND_DIGITS
namespace {
#include "formats/weight_blocks-inl.h"
#include "formats/weight_codes-inl.h"
// after what they use
#include "cpu/digit_units-inl.h"
// after the units
#include "cpu/digit_rows-inl.h"
}  // namespace

struct EightLanes {
  static constexpr size_t kTogether = 2, kPieces = kUnitGroups;
  static constexpr size_t first(size_t i) { return i; }
  static constexpr size_t last(size_t i) { return i; }
  using Sums = __m256;
  using Codes = __m256i;
  template <class W>
  struct Steps {
    HWY_ALIGN float of[kUnit / W::kPart];
  };

  static HWY_INLINE Sums zero() { return _mm256_setzero_ps(); }
  static HWY_INLINE float total(Sums v) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
  }
  template <class W>
  struct UnitSteps {
    __m256 step[2], least[2];

    HWY_INLINE UnitSteps(const uint8_t* at, size_t n) {
      W::steps(at, n, step, least);
      if constexpr (W::kOffset != 0) {
        BLEND_UNROLL
        for (size_t i = 0; i < kUnit / W::kPart / 8; ++i) {
          least[i] = _mm256_mul_ps(step[i], _mm256_set1_ps(static_cast<float>(W::kOffset)));
        }
      }
    }
    HWY_INLINE void times(const float* scale, const float* sum, Steps<W>& steps, Sums& sums) const {
      BLEND_UNROLL
      for (size_t i = 0; i < kUnit / W::kPart / 8; ++i) {
        _mm256_store_ps(steps.of + 8 * i, _mm256_mul_ps(step[i], _mm256_loadu_ps(scale + 8 * i)));
        if constexpr (W::kLeast || W::kOffset != 0) {
          sums = _mm256_fnmadd_ps(least[i], _mm256_loadu_ps(sum + 8 * i), sums);
        }
      }
    }
  };
  template <class W, size_t i>
  static HWY_INLINE Codes codes(const uint8_t* at) {
    return W::template codes<i>(at);
  }
  template <class W, size_t i>
  static HWY_INLINE Codes first_codes(const uint8_t* at) {
    return W::template codes<i>(at);
  }
  static HWY_INLINE __m256i products(Codes codes, const int8_t* digits, int weight) {
    const __m256i d = _mm256_load_si256(reinterpret_cast<const __m256i*>(digits));
    return _mm256_madd_epi16(_mm256_maddubs_epi16(codes, d),
                             _mm256_set1_epi16(static_cast<int16_t>(weight)));
  }
  // The sums of four products each.
  static HWY_INLINE __m256 products(Codes codes, const int8_t* digits) {
    const __m256i low = products(codes, digits, 1);
    const __m256i middle = products(codes, digits + DigitRow::kDigitStride, 1 << 7);
    const __m256i high = products(codes, digits + 2 * DigitRow::kDigitStride, 1 << 14);
    return _mm256_cvtepi32_ps(_mm256_add_epi32(_mm256_add_epi32(low, middle), high));
  }
  template <class W, size_t g>
  static HWY_INLINE void add(Codes codes, const int8_t* digits, const Steps<W>& steps, Sums& sums) {
    __m256 step;
    if constexpr (W::kPart < kDigitGroup) {
      step =
          _mm256_castpd_ps(_mm256_broadcast_sd(reinterpret_cast<const double*>(steps.of + 2 * g)));
      step = _mm256_permutevar_ps(step, _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1));
    } else {
      step = _mm256_broadcast_ss(steps.of + g);
    }
    sums = _mm256_fmadd_ps(products(codes, digits + DigitRow::at(g)), step, sums);
  }
};

bool Take(BlockType blocks) {
  return with_unit(blocks, [](auto) {});
}
void PackDigits(const float* x, size_t m, size_t k, std::byte* packed) {
  pack_rows(x, m, k, packed);
}
void Multiply(const FewRows& p) {
  with_unit(p.blocks, [&](auto unit) { multiply_all<EightLanes, decltype(unit)>(p); });
}
#else
bool Take(BlockType /*blocks*/) { return false; }
void PackDigits(const float* /*x*/, size_t /*m*/, size_t /*k*/, std::byte* /*packed*/) {}
void Multiply(const FewRows& /*p*/) {}
#endif

}  // namespace blend::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace blend::kernels {

HWY_EXPORT(Take);
HWY_EXPORT(PackDigits);
HWY_EXPORT(Multiply);

bool digit_rows_take(BlockType blocks) {
  if (blocks == BlockType::none) return false;
  if (const DigitDot* const dot = digit_dot(int8_path())) return dot->take(blocks);
  return HWY_DYNAMIC_DISPATCH(Take)(blocks);
}
void digit_rows_pack(const float* x, size_t m, size_t k, std::byte* packed) {
  if (const DigitDot* const dot = digit_dot(int8_path())) return dot->pack(x, m, k, packed);
  HWY_DYNAMIC_DISPATCH(PackDigits)(x, m, k, packed);
}
void digit_rows(const FewRows& product) {
  if (const DigitDot* const dot = digit_dot(int8_path())) return dot->multiply(product);
  HWY_DYNAMIC_DISPATCH(Multiply)(product);
}

}  // namespace blend::kernels
#endif  // HWY_ONCE
