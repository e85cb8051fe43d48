// Common definitions of the kernels here: launches, storage types, reductions.
//
// The sources compile as CUDA and, with tests/simt in the include path, as plain C++ for the host.
// PTX instructions are in ptx.cuh, beside a host version that follows the PTX manual.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "formats/half.h"

// `kernel`: a pointer to one, so that its template arguments need no parentheses.
#if defined(__CUDACC__)
#define BLEND_LAUNCH(kernel, grid, block, shared, stream, ...) \
  (kernel)<<<(grid), (block), (shared), (stream)>>>(__VA_ARGS__)
#else
#define BLEND_LAUNCH(kernel, grid, block, shared, stream, ...)                               \
  ::simt::launch((grid), (block), (shared), (stream), reinterpret_cast<const void*>(kernel), \
                 [=] { kernel(__VA_ARGS__); })
#endif

namespace blend::kernels::cuda {

// The block's shared memory whose size the launch gives, aligned to 128 bytes.
__device__ inline unsigned char* dynamic_shared() {
#if defined(__CUDACC__)
  extern __shared__ __align__(128) unsigned char blend_dynamic_shared[];
  return blend_dynamic_shared;
#else
  return simt::dynamic_shared;
#endif
}

// ---- Storage types. Rounding is to nearest even, as in formats/half.h.

__device__ inline float from_bf16(uint16_t h) {
  return __uint_as_float(static_cast<uint32_t>(h) << 16);
}
__device__ inline float from_f16(uint16_t h) {
#if defined(__CUDACC__)
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
  return f;
#else
  return f16_to_f32(h);
#endif
}
__device__ inline uint16_t to_f16(float f) {
#if defined(__CUDACC__)
  uint16_t h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
  return h;
#else
  return f32_to_f16(f);
#endif
}
// Two in one register, `low` in the lower half.
__device__ inline uint32_t pack_bf16(float low, float high) {
#if defined(__CUDACC__)
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
#else
  return f32_to_bf16(low) | static_cast<uint32_t>(f32_to_bf16(high)) << 16;
#endif
}
__device__ inline uint16_t to_bf16(float f) { return static_cast<uint16_t>(pack_bf16(f, 0.0f)); }

template <DType kType>
__device__ inline float load(const void* p, size_t i) {
  if constexpr (kType == DType::f32) {
    return static_cast<const float*>(p)[i];
  } else {
    const uint16_t h = static_cast<const uint16_t*>(p)[i];
    return kType == DType::f16 ? from_f16(h) : from_bf16(h);
  }
}
template <DType kType>
__device__ inline void store(void* p, size_t i, float value) {
  if constexpr (kType == DType::f32) {
    static_cast<float*>(p)[i] = value;
  } else {
    static_cast<uint16_t*>(p)[i] = kType == DType::f16 ? to_f16(value) : to_bf16(value);
  }
}
// Four at once from index 4 * i on; p aligned to four elements. f32 and bf16.
template <DType kType>
__device__ inline float4 load4(const void* p, size_t i) {
  if constexpr (kType == DType::f32) {
    return static_cast<const float4*>(p)[i];
  } else {
    const uint2 u = static_cast<const uint2*>(p)[i];
    return {__uint_as_float(u.x << 16), __uint_as_float(u.x & 0xffff0000u),
            __uint_as_float(u.y << 16), __uint_as_float(u.y & 0xffff0000u)};
  }
}
template <DType kType>
__device__ inline void store4(void* p, size_t i, float4 v) {
  if constexpr (kType == DType::f32) {
    static_cast<float4*>(p)[i] = v;
  } else {
    static_cast<uint2*>(p)[i] = {pack_bf16(v.x, v.y), pack_bf16(v.z, v.w)};
  }
}

// NaN or infinity.
__device__ inline bool not_finite(float f) {
  return (__float_as_uint(f) & 0x7f800000u) == 0x7f800000u;
}

// ---- Reductions, in one order whatever runs first. Blocks are whole warps, at most 32 of them.

__device__ inline float warp_sum(float x) {
  for (int with = 16; with > 0; with /= 2) x += __shfl_xor_sync(0xffffffffu, x, with);
  return x;
}
__device__ inline float warp_max(float x) {
  for (int with = 16; with > 0; with /= 2) {
    const float other = __shfl_xor_sync(0xffffffffu, x, with);
    x = x > other ? x : other;
  }
  return x;
}
// The sum over the block, in every thread. parts: shared [32]; free again when it returns.
__device__ inline float block_sum(float x, float* parts) {
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32, n_warps = blockDim.x / 32;
  x = warp_sum(x);
  if (lane == 0) parts[warp] = x;
  __syncthreads();
  x = warp_sum(lane < n_warps ? parts[lane] : 0.0f);
  __syncthreads();
  return x;
}
__device__ inline float block_max(float x, float* parts) {
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32, n_warps = blockDim.x / 32;
  x = warp_max(x);
  if (lane == 0) parts[warp] = x;
  __syncthreads();
  x = warp_max(parts[lane < n_warps ? lane : 0]);
  __syncthreads();
  return x;
}

}  // namespace blend::kernels::cuda
