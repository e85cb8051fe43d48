// What every SIMD kernel includes before Highway.
//
// Each instruction set costs as much time to compile as any other, so there are those that machines
// have: SSE4 (the least of an x86-64 CPU: whatever was sold since 2011), AVX2 and AVX-512; NEON on
// Arm. SSSE3 and SSE2 would be for CPUs that are refused (isa.h). The kernels keep sums in arrays of
// vectors, which need a vector size known at compile time, so the scalable targets (SVE, RVV) are
// left out. The best that the machine has is chosen at run time.
#pragma once

#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#endif

// Register blocks are loops over constant bounds; they must be unrolled at every -O level.
#define BLEND_UNROLL _Pragma("GCC unroll 16")
