// What every SIMD kernel includes before Highway.
//
// The kernels keep accumulators in arrays of vectors, which need a vector size known at compile
// time, so the scalable targets (SVE, RVV) are left out: ARM runs NEON. Everything else that the
// compiler can generate is compiled, and the best that the machine has is chosen at run time.
#pragma once

#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#endif

// Register blocks are loops over constant bounds; they must be unrolled at every -O level.
#define BLEND_UNROLL _Pragma("GCC unroll 16")
