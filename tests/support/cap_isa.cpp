// A module for LD_PRELOAD: what BLEND_TEST_ISA names is the most that Highway's kernels run in the
// process, as cap_isa() of cpu/isa.h has it for programs that hold our code themselves. libhwy.so
// is the process's, so libblend.so's kernels follow. Which integer products it takes they decide
// among what the CPU has.
#include <hwy/targets.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

struct Name {
  const char* name;
  int64_t best;
};

constexpr Name kNames[] = {
#if HWY_ARCH_X86
    {"SSE4", HWY_SSE4},     {"AVX2", HWY_AVX2},        {"AVX2-VNNI", HWY_AVX2},
    {"AVX512", HWY_AVX3},   {"AVX512-VNNI", HWY_AVX3},
#elif HWY_ARCH_ARM
    {"NEON", HWY_NEON},
    {"NEON-DOT", HWY_NEON},
#endif
    {"scalar", HWY_EMU128},
};

__attribute__((constructor)) void cap() {
  const char* const isa = std::getenv("BLEND_TEST_ISA");
  if (isa == nullptr) return;
  for (const Name& n : kNames) {
    if (std::strcmp(n.name, isa) != 0) continue;
    hwy::DisableTargets(n.best - 1);  // a better target is a lower bit
    return;
  }
  std::fprintf(stderr, "BLEND_TEST_ISA=%s: no such instruction set here\n", isa);
  std::_Exit(2);
}

}  // namespace
