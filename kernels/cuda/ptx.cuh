// The PTX instructions that the kernels use, one function each, with a host version that follows
// the fragment layouts of the PTX ISA manual (9.7.14, "mma.m16n8k16" for .bf16; "ldmatrix";
// "cp.async"). sm_80 and later have all of them.
#pragma once

#include <cfloat>
#include <cmath>

#include "cuda/device.cuh"

namespace blend::kernels::cuda {

// 2^x and 1 / x to 22 bits; results too small for a normal number are 0.
__device__ inline float exp2_approx(float x) {
#if defined(__CUDACC__)
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  const float y = std::exp2(x);
  return y < FLT_MIN ? 0.0f : y;
#endif
}
__device__ inline float reciprocal_approx(float x) {
#if defined(__CUDACC__)
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return 1.0f / x;
#endif
}

// a b, rounded towards -infinity.
__device__ inline float multiply_down(float a, float b) {
#if defined(__CUDACC__)
  return __fmul_rd(a, b);
#else
  const double exact = static_cast<double>(a) * static_cast<double>(b);
  const auto nearest = static_cast<float>(exact);
  return static_cast<double>(nearest) > exact ? std::nextafter(nearest, -INFINITY) : nearest;
#endif
}

// d += a b for a warp: a [16, 16] and b [16, 8] of bf16, d [16, 8] of f32. Registers of lane l,
// with g = l / 4 and t = l % 4 (two bf16 a register, the lower column or row in the lower half):
//
//   a[0]: row g      columns 2t, 2t+1       b[0]: rows 2t, 2t+1      column g
//   a[1]: row g + 8  columns 2t, 2t+1       b[1]: rows 2t+8, 2t+9    column g
//   a[2]: row g      columns 2t+8, 2t+9     d[0], d[1]: row g        columns 2t, 2t+1
//   a[3]: row g + 8  columns 2t+8, 2t+9     d[2], d[3]: row g + 8    columns 2t, 2t+1
__device__ inline void mma_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#if defined(__CUDACC__)
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  struct Arg {
    float* d;
    const uint32_t* a;
    uint32_t b[2];
  } arg{d, a, {b0, b1}};
  simt::warp_operation("mma", 0xffffffffu, &arg, [](void* const args[32], unsigned) {
    float ma[16][16], mb[16][8];
    for (int l = 0; l < 32; ++l) {
      const auto* const lane = static_cast<const Arg*>(args[l]);
      const int g = l / 4, t = l % 4;
      for (int r = 0; r < 4; ++r) {
        const int row = g + 8 * (r & 1), col = 2 * t + 8 * (r / 2);
        ma[row][col] = bf16_to_f32(static_cast<uint16_t>(lane->a[r]));
        ma[row][col + 1] = bf16_to_f32(static_cast<uint16_t>(lane->a[r] >> 16));
      }
      for (int r = 0; r < 2; ++r) {
        mb[2 * t + 8 * r][g] = bf16_to_f32(static_cast<uint16_t>(lane->b[r]));
        mb[2 * t + 8 * r + 1][g] = bf16_to_f32(static_cast<uint16_t>(lane->b[r] >> 16));
      }
    }
    for (int l = 0; l < 32; ++l) {
      const auto* const lane = static_cast<const Arg*>(args[l]);
      for (int r = 0; r < 4; ++r) {
        const int row = l / 4 + 8 * (r / 2), col = 2 * (l % 4) + (r & 1);
        float sum = lane->d[r];
        for (int e = 0; e < 16; ++e) sum += ma[row][e] * mb[e][col];
        lane->d[r] = sum;
      }
    }
  });
#endif
}

// Four matrices of 8 x 8 elements of 16 bits. Lane l passes the address of row l % 8 of matrix l /
// 8, 16 bytes aligned to 16. r[i] of lane l: of matrix i, row l / 4, columns 2 (l % 4) and the
// next; transposed: column l / 4, rows 2 (l % 4) and the next.
template <bool kTransposed>
__device__ inline void ldmatrix_x4(uint32_t (&r)[4], const void* row) {
#if defined(__CUDACC__)
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address));
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address));
  }
#else
  struct Arg {
    uint32_t* r;
    const uint16_t* row;
  } arg{r, static_cast<const uint16_t*>(row)};
  if (reinterpret_cast<uintptr_t>(row) % 16 != 0) simt::die("ldmatrix from an unaligned row");
  simt::warp_operation(kTransposed ? "ldmatrix.trans" : "ldmatrix", 0xffffffffu, &arg,
                       [](void* const args[32], unsigned) {
                         const auto row_of = [&](int matrix, int i) {
                           return static_cast<const Arg*>(args[matrix * 8 + i])->row;
                         };
                         for (int l = 0; l < 32; ++l) {
                           const int g = l / 4, t = 2 * (l % 4);
                           for (int i = 0; i < 4; ++i) {
                             const uint32_t low = kTransposed ? row_of(i, t)[g] : row_of(i, g)[t];
                             const uint32_t high =
                                 kTransposed ? row_of(i, t + 1)[g] : row_of(i, g)[t + 1];
                             static_cast<const Arg*>(args[l])->r[i] = low | high << 16;
                           }
                         }
                       });
#endif
}

// 16 bytes from global to shared memory, both aligned to 16, without passing through registers;
// zeros instead where `present` is false (`from` is then not read). Arrives with the wait for the
// group that it was committed to, and is then visible to the thread that issued it.
__device__ inline void copy_async_16(void* to, const void* from, bool present) {
#if defined(__CUDACC__)
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  const int bytes = present ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(bytes)
               : "memory");
#else
  if (reinterpret_cast<uintptr_t>(to) % 16 != 0 ||
      (present && reinterpret_cast<uintptr_t>(from) % 16 != 0)) {
    simt::die("cp.async with unaligned memory");
  }
  simt::copy_async(to, from, present ? 16 : 0, present ? 0 : 16);
#endif
}
__device__ inline void copy_async_commit() {
#if defined(__CUDACC__)
  asm volatile("cp.async.commit_group;" ::: "memory");
#else
  simt::commit_async();
#endif
}
// Waits until at most kLeft of the newest groups are unfinished.
template <int kLeft>
__device__ inline void copy_async_wait() {
#if defined(__CUDACC__)
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
#else
  simt::wait_async(kLeft);
#endif
}

}  // namespace blend::kernels::cuda
