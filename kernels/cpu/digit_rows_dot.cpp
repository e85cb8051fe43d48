// Highway 1.0 has no product of four bytes, so these are the compilers' own intrinsics, in
// functions that only run where isa.h found the instruction.
#include "cpu/digit_rows_dot.h"

#include <hwy/base.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "cpu/simd.h"
#include "formats/half.h"
#include "formats/weight_blocks.h"
#include "formats/weight_grids.h"

#if HWY_ARCH_X86
#include <immintrin.h>
#ifndef __clang__  // GCC takes the intrinsics' own undefined operands for ours
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,fma,avx2,f16c")
namespace blend::kernels::avx512_vnni {
namespace {

#include "formats/weight_blocks-inl.h"
#include "formats/weight_codes-inl.h"
// after what they use
#include "cpu/digit_units-inl.h"
// after the units
#include "cpu/digit_pairs-inl.h"
#include "cpu/digit_rows-inl.h"

struct SixteenLanes {
  static constexpr size_t kTogether = 4, kPieces = kUnitGroups / 2;
  static constexpr size_t first(size_t i) { return DigitRow::first_of_pair(i); }
  static constexpr size_t last(size_t i) { return first(i) + 2; }
  using Sums = __m512;
  using Codes = __m512i;
  template <class W>
  using Steps = __m512;
  template <class W>
  using UnitSteps = PairSteps<W>;

  static HWY_INLINE Sums zero() { return _mm512_setzero_ps(); }
  static HWY_INLINE float total(Sums v) {
    const __m256 h = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
  }
  template <class W, size_t i>
  static HWY_INLINE Codes codes(const uint8_t* at) {
    if constexpr (requires { pair_codes<i>(W(), at); }) {
      return pair_codes<i>(W(), at);
    } else {
      const Codes low = first_codes<W, i>(at);  // Clang's inserti64x4 is a macro
      const __m256i high = W::template codes<last(i)>(at);
      return _mm512_inserti64x4(low, high, 1);
    }
  }
  template <class W, size_t i>
  static HWY_INLINE Codes first_codes(const uint8_t* at) {
    return _mm512_zextsi256_si512(W::template codes<first(i)>(at));
  }
  template <class W, size_t i>
  static HWY_INLINE void add(Codes codes, const int8_t* digits, __m512 steps, Sums& sums) {
    digits += DigitRow::at(first(i));
    const __m512i low = _mm512_loadu_si512(digits);
    const __m512i middle = _mm512_loadu_si512(digits + DigitRow::kDigitStride);
    const __m512i high = _mm512_loadu_si512(digits + 2 * DigitRow::kDigitStride);
    __m512i s = _mm512_dpbusd_epi32(_mm512_setzero_si512(), codes, high);
    s = _mm512_dpbusd_epi32(_mm512_slli_epi32(s, 7), codes, middle);
    s = _mm512_dpbusd_epi32(_mm512_slli_epi32(s, 7), codes, low);
    // The part of each four elements.
    constexpr int kEach = static_cast<int>(kDigitGroup / W::kPart);
    constexpr int a = first(i) * kEach, b = a + kEach - 1, c = last(i) * kEach, d = c + kEach - 1;
    const __m512i part = _mm512_setr_epi32(a, a, a, a, b, b, b, b, c, c, c, c, d, d, d, d);
    sums = _mm512_fmadd_ps(_mm512_cvtepi32_ps(s), _mm512_permutexvar_ps(part, steps), sums);
  }
};

// In f32 these are faster: sixteen values that a nibble names are one vector there, and the scales
// of small blocks lie scattered. (One Zen 5 core, one row, k = 2048, GB/s of W in f32 and so: Q4_0
// 27 and 23, MXFP4 25 and 21, Q4_1 20 to 23 and 22; IQ4_NL 17 and 21, but 16 rows of steps 2.8 and
// 2.0. For comparison Q5_0 15 and 21, Q4_K 24 and 34, Q6_K 25 and 39, Q3_K 7 and 19.)
bool faster_in_f32(BlockType blocks) {
  return blocks == BlockType::q4_0 || blocks == BlockType::q4_1 || blocks == BlockType::iq4_nl ||
         blocks == BlockType::mxfp4;
}
bool take(BlockType blocks) {
  return !faster_in_f32(blocks) && with_unit(blocks, [](auto) {});
}
void multiply(const FewRows& p) {
  with_unit(p.blocks, [&](auto unit) { multiply_all<SixteenLanes, decltype(unit)>(p); });
}

}  // namespace

const DigitDot kDot = {&take, &pack_rows, &multiply};

}  // namespace blend::kernels::avx512_vnni
HWY_POP_ATTRIBUTES
#endif  // HWY_ARCH_X86

namespace blend::kernels {

const DigitDot* digit_dot([[maybe_unused]] Int8Path path) {
#if HWY_ARCH_X86
  if (path == Int8Path::avx512_vnni) return &avx512_vnni::kDot;
#endif
  return nullptr;
}

}  // namespace blend::kernels
