#include "cpu/isa.h"

#include "cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/isa.cpp"
#include <hwy/foreach_target.h>
// after foreach_target
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace blend::kernels::HWY_NAMESPACE {

int64_t Target() { return HWY_TARGET; }

}  // namespace blend::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <atomic>
#include <cstdint>
#include <cstring>

#if HWY_ARCH_X86
#include <cpuid.h>
#elif HWY_ARCH_ARM
#include <sys/auxv.h>
#endif

namespace blend::kernels {
namespace {

HWY_EXPORT(Target);

int64_t chosen_target() { return HWY_DYNAMIC_DISPATCH(Target)(); }

// Bits of Int8Path.
constexpr unsigned bit(Int8Path path) { return 1u << static_cast<unsigned>(path); }
constexpr unsigned kAnyPath = ~0u;

// For each path but words, whether the CPU has its instruction. Asked once: under a hypervisor each
// cpuid costs as much as a small product.
unsigned cpu_paths() {
  unsigned paths = 0;
#if HWY_ARCH_X86
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) != 0) {
    const unsigned last_subleaf = a;
    if ((c >> 11 & 1) != 0) paths |= bit(Int8Path::avx512_vnni);
    if (last_subleaf >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a >> 4 & 1) != 0) {
      paths |= bit(Int8Path::avx_vnni);
    }
  }
#elif HWY_ARCH_ARM_A64
  // Linux's HWCAP_ASIMDDP and HWCAP2_I8MM, which older headers do not name.
  if ((getauxval(AT_HWCAP) >> 20 & 1) != 0) paths |= bit(Int8Path::neon_dot);
  if ((getauxval(AT_HWCAP2) >> 13 & 1) != 0) paths |= bit(Int8Path::neon_i8mm);
#endif
  return paths;
}

std::atomic<unsigned> allowed_paths{kAnyPath};

struct Cap {
  const char* name;
  int64_t best;    // in Highway's order a better target is a lower bit
  unsigned paths;  // besides words
};

constexpr Cap kCaps[] = {
#if HWY_ARCH_X86
    {"SSE4", HWY_SSE4, 0},
    {"AVX2", HWY_AVX2, 0},
    {"AVX2-VNNI", HWY_AVX2, bit(Int8Path::avx_vnni)},
    {"AVX512", HWY_AVX3, 0},
    {"AVX512-VNNI", HWY_AVX3, bit(Int8Path::avx512_vnni)},
#elif HWY_ARCH_ARM
    {"NEON", HWY_NEON, 0},
    {"NEON-DOT", HWY_NEON, bit(Int8Path::neon_dot)},
#endif
    {"less", HWY_EMU128, 0},
};

void apply(int64_t disabled_targets, unsigned paths) {
  hwy::DisableTargets(disabled_targets);
  hwy::GetChosenTarget().DeInit();
  allowed_paths.store(paths, std::memory_order_relaxed);
}

}  // namespace

const char* simd_name() {
  const int64_t target = chosen_target();
  if (target >= HWY_EMU128) return "no SIMD";
#if HWY_ARCH_X86
  if (target <= HWY_AVX3) return "AVX-512";
  if (target == HWY_AVX2) return "AVX2";
  if (target == HWY_SSE4) return "SSE4";
#elif HWY_ARCH_ARM
  if (target <= HWY_NEON) return "NEON";
#endif
  return hwy::TargetName(target);
}

bool simd_is_slow() {
  const int64_t target = chosen_target();
#if HWY_ARCH_X86
  if (target > HWY_AVX2) return true;
#endif
  return target >= HWY_EMU128;
}

bool cpu_suffices() {
#if HWY_ARCH_X86
  return chosen_target() <= HWY_SSE4;
#else
  return true;
#endif
}

Int8Path int8_path() {
  static const unsigned of_cpu = cpu_paths();
  [[maybe_unused]] const unsigned paths = of_cpu & allowed_paths.load(std::memory_order_relaxed);
  [[maybe_unused]] const int64_t target = chosen_target();
#if HWY_ARCH_X86
  // Only where Highway found that the system keeps registers of that size.
  if (target <= HWY_AVX3 && (paths & bit(Int8Path::avx512_vnni)) != 0) return Int8Path::avx512_vnni;
  if (target <= HWY_AVX2 && (paths & bit(Int8Path::avx_vnni)) != 0) return Int8Path::avx_vnni;
#elif HWY_ARCH_ARM_A64
  if (target <= HWY_NEON && (paths & bit(Int8Path::neon_i8mm)) != 0) return Int8Path::neon_i8mm;
  if (target <= HWY_NEON && (paths & bit(Int8Path::neon_dot)) != 0) return Int8Path::neon_dot;
#endif
  return Int8Path::words;
}

const char* int8_path_name(Int8Path path) {
  switch (path) {
    case Int8Path::words:
      return "16-bit products";
    case Int8Path::avx_vnni:
    case Int8Path::avx512_vnni:
      return "VNNI";
    case Int8Path::neon_dot:
      return "dot product";
    case Int8Path::neon_i8mm:
      return "int8 matrices";
  }
  return "";
}

std::string isa_text() {
  std::string text = simd_name();
  const Int8Path path = int8_path();
  if (path != Int8Path::words) text += std::string(", ") + int8_path_name(path);
  return text;
}

bool cap_isa(const char* name) {
  if (name == nullptr) {
    apply(0, kAnyPath);
    return true;
  }
  for (const Cap& cap : kCaps) {
    if (std::strcmp(cap.name, name) != 0) continue;
    apply(cap.best - 1, cap.paths);
    return true;
  }
  return false;
}

}  // namespace blend::kernels
#endif  // HWY_ONCE
