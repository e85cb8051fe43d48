// Highway 1.0 has no product of four bytes, so these are the compilers' own intrinsics, in
// functions that only run where isa.h found the instruction.
#include "cpu/gemm_int8_dot.h"

#include <hwy/base.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "cpu/fetch_ahead.h"
#include "cpu/simd.h"

#if HWY_ARCH_X86
#include <immintrin.h>
#ifndef __clang__  // GCC takes the intrinsics' own undefined operands for ours
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,fma,avx2")
namespace blend::kernels::avx512_vnni {

#include "cpu/gemm_int8-inl.h"

struct Dot {
  static constexpr size_t kLanes = 16, kRows = 14, kGroup = 4, kVectorBytes = kLanes * kGroup;
  static constexpr bool kFourOfX = false;
  static constexpr size_t kDepth = 192;
  using Sums = __m512i;
  using Bytes = __m512i;
  static HWY_INLINE Sums zero() { return _mm512_setzero_si512(); }
  static HWY_INLINE Bytes broadcast(uint32_t group) {
    return _mm512_set1_epi32(static_cast<int32_t>(group));
  }
  static HWY_INLINE Bytes load(const int8_t* groups) { return _mm512_loadu_si512(groups); }
  static HWY_INLINE Sums dot(Sums sum, Bytes x, Bytes w) { return _mm512_dpbusd_epi32(sum, x, w); }
  static HWY_INLINE Sums load_sums(const int32_t* sums) { return _mm512_load_si512(sums); }
  static HWY_INLINE void store_sums(Sums sum, int32_t* sums) { _mm512_store_si512(sums, sum); }
  static HWY_INLINE Sums add(Sums a, Sums b) { return _mm512_add_epi32(a, b); }
  static HWY_INLINE void finish(Sums sum, const Int8Row& row, const int32_t* sums,
                                const float* steps, float* y, bool add) {
    const __m512i zeros = _mm512_mullo_epi32(_mm512_set1_epi32(row.zero), _mm512_loadu_si512(sums));
    const __m512 factor = _mm512_mul_ps(_mm512_set1_ps(row.scale), _mm512_loadu_ps(steps));
    __m512 out = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(sum, zeros)), factor);
    if (add) out = _mm512_add_ps(_mm512_loadu_ps(y), out);
    _mm512_storeu_ps(y, out);
  }
};

void run(const Int8Tile& t) { int8_all<Dot>(t); }

}  // namespace blend::kernels::avx512_vnni
HWY_POP_ATTRIBUTES

HWY_PUSH_ATTRIBUTES("avx2,fma,avxvnni")
namespace blend::kernels::avx_vnni {

#include "cpu/gemm_int8-inl.h"

struct Dot {
  static constexpr size_t kLanes = 8, kRows = 6, kGroup = 4, kVectorBytes = kLanes * kGroup;
  static constexpr bool kFourOfX = false;
  static constexpr size_t kDepth = 0;
  using Sums = __m256i;
  using Bytes = __m256i;
  static HWY_INLINE Sums zero() { return _mm256_setzero_si256(); }
  static HWY_INLINE Bytes broadcast(uint32_t group) {
    return _mm256_set1_epi32(static_cast<int32_t>(group));
  }
  static HWY_INLINE Bytes load(const int8_t* groups) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(groups));
  }
  static HWY_INLINE Sums dot(Sums sum, Bytes x, Bytes w) {
    return _mm256_dpbusd_avx_epi32(sum, x, w);
  }
  static HWY_INLINE void finish(Sums sum, const Int8Row& row, const int32_t* sums,
                                const float* steps, float* y, bool add) {
    const __m256i zeros = _mm256_mullo_epi32(
        _mm256_set1_epi32(row.zero), _mm256_loadu_si256(reinterpret_cast<const __m256i*>(sums)));
    const __m256 factor = _mm256_mul_ps(_mm256_set1_ps(row.scale), _mm256_loadu_ps(steps));
    __m256 out = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_sub_epi32(sum, zeros)), factor);
    if (add) out = _mm256_add_ps(_mm256_loadu_ps(y), out);
    _mm256_storeu_ps(y, out);
  }
};

void run(const Int8Tile& t) { int8_all<Dot>(t); }

}  // namespace blend::kernels::avx_vnni
HWY_POP_ATTRIBUTES

#elif HWY_ARCH_ARM_A64
#include <arm_neon.h>

HWY_PUSH_ATTRIBUTES("arch=armv8.2-a+dotprod")
namespace blend::kernels::neon_dot {

#include "cpu/gemm_int8-inl.h"

struct Dot {
  static constexpr size_t kLanes = 4, kRows = 12, kGroup = 4, kVectorBytes = kLanes * kGroup;
  static constexpr bool kFourOfX = true;
  static constexpr size_t kDepth = 0;
  using Sums = int32x4_t;
  using Bytes = int8x16_t;
  static HWY_INLINE Sums zero() { return vdupq_n_s32(0); }
  static HWY_INLINE Bytes broadcast(uint32_t group) {
    return vreinterpretq_s8_u32(vdupq_n_u32(group));
  }
  static HWY_INLINE Bytes load(const int8_t* groups) { return vld1q_s8(groups); }
  static HWY_INLINE Sums dot(Sums sum, Bytes x, Bytes w) { return vdotq_s32(sum, x, w); }
  static HWY_INLINE Sums dot_of_four(Sums sum, Bytes xs, size_t i, Bytes w) {
    switch (i) {  // the instruction's index is a constant
      case 0:
        return vdotq_laneq_s32(sum, w, xs, 0);
      case 1:
        return vdotq_laneq_s32(sum, w, xs, 1);
      case 2:
        return vdotq_laneq_s32(sum, w, xs, 2);
      default:
        return vdotq_laneq_s32(sum, w, xs, 3);
    }
  }
  static HWY_INLINE void finish(Sums sum, const Int8Row& row, const int32_t* sums,
                                const float* steps, float* y, bool add) {
    const int32x4_t zeros = vmulq_n_s32(vld1q_s32(sums), row.zero);
    const float32x4_t factor = vmulq_n_f32(vld1q_f32(steps), row.scale);
    float32x4_t out = vmulq_f32(vcvtq_f32_s32(vsubq_s32(sum, zeros)), factor);
    if (add) out = vaddq_f32(vld1q_f32(y), out);
    vst1q_f32(y, out);
  }
};

void run(const Int8Tile& t) { int8_all<Dot>(t); }

}  // namespace blend::kernels::neon_dot
HWY_POP_ATTRIBUTES

HWY_PUSH_ATTRIBUTES("arch=armv8.2-a+dotprod+i8mm")
namespace blend::kernels::neon_i8mm {

#include "cpu/gemm_int8-inl.h"

// Unsigned bytes times signed ones.
struct Dot : neon_dot::Dot {
  using Bytes = uint8x16_t;
  static HWY_INLINE Bytes broadcast(uint32_t group) {
    return vreinterpretq_u8_u32(vdupq_n_u32(group));
  }
  static HWY_INLINE Bytes load(const int8_t* groups) {
    return vreinterpretq_u8_s8(vld1q_s8(groups));
  }
  static HWY_INLINE Sums dot(Sums sum, Bytes x, Bytes w) {
    return vusdotq_s32(sum, x, vreinterpretq_s8_u8(w));
  }
  static HWY_INLINE Sums dot_of_four(Sums sum, Bytes xs, size_t i, Bytes w) {
    const int8x16_t signed_w = vreinterpretq_s8_u8(w);
    switch (i) {
      case 0:
        return vsudotq_laneq_s32(sum, signed_w, xs, 0);
      case 1:
        return vsudotq_laneq_s32(sum, signed_w, xs, 1);
      case 2:
        return vsudotq_laneq_s32(sum, signed_w, xs, 2);
      default:
        return vsudotq_laneq_s32(sum, signed_w, xs, 3);
    }
  }
};

void run(const Int8Tile& t) { int8_all<Dot>(t); }

}  // namespace blend::kernels::neon_i8mm
HWY_POP_ATTRIBUTES
#endif

namespace blend::kernels {

Int8Shape int8_dot_shape(Int8Path path) {
  switch (path) {
#if HWY_ARCH_X86
    case Int8Path::avx512_vnni:
      return {avx512_vnni::Dot::kRows, 32, 4, avx512_vnni::Dot::kDepth, avx512_vnni::Dot::kRows};
    case Int8Path::avx_vnni:
      return {avx_vnni::Dot::kRows, 16, 4, avx_vnni::Dot::kDepth, avx_vnni::Dot::kRows};
#elif HWY_ARCH_ARM_A64
    case Int8Path::neon_dot:
    case Int8Path::neon_i8mm:
      return {neon_dot::Dot::kRows, 8, 4, neon_dot::Dot::kDepth, neon_dot::Dot::kRows};
#endif
    default:
      return {0, 0, 0, 0, 0};
  }
}

void int8_dot_tile(Int8Path path, const Int8Tile& tile) {
  switch (path) {
#if HWY_ARCH_X86
    case Int8Path::avx512_vnni:
      return avx512_vnni::run(tile);
    case Int8Path::avx_vnni:
      return avx_vnni::run(tile);
#elif HWY_ARCH_ARM_A64
    case Int8Path::neon_dot:
      return neon_dot::run(tile);
    case Int8Path::neon_i8mm:
      return neon_i8mm::run(tile);
#endif
    default:
      return;
  }
}

}  // namespace blend::kernels
