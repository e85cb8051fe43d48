// Common definitions of SIMD kernels, included before Highway.
//
// Each instruction set costs as much time to compile as any other, so there are only common ones:
// SSE4 (the least of an x86-64 CPU: all sold since 2011), AVX2 and AVX-512; NEON on
// Arm. SSSE3 would be for CPUs that are refused (isa.h). The best that the machine has is chosen at
// run time.
//
// The kernels keep accumulators in arrays of vectors. The scalable targets (SVE, RVV) have no
// arrays of them, not even those of Highway's that fix the size (SVE_256, SVE2_128), so they are
// left out. That costs nothing on cores whose SVE is as wide as NEON, which is most of them
// (Neoverse N2 and V2, Cortex-X and -A).
#pragma once

#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#endif

// On the current target f16 <-> f32 are instructions (F16C; Arm has them since Armv8). For #if.
#define BLEND_HAS_HALF_CONVERSION \
  ((HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2) || (HWY_ARCH_ARM_A64 && HWY_TARGET < HWY_EMU128))

// Register blocks are loops over constant bounds; they must be unrolled at every -O level.
#define BLEND_UNROLL _Pragma("GCC unroll 16")
