// The instruction sets that tests run under: those of this machine, each as a cap (cpu/isa.h).
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cpu/isa.h"

namespace blend::test {

inline constexpr const char* kUncapped = "uncapped";

inline void compute_as(const std::string& isa) {
  kernels::cap_isa(isa == kUncapped ? nullptr : isa.c_str());
}

// Names for compute_as(), no two of which compute the same way.
inline std::vector<std::string> machine_isas() {
  std::vector<std::string> names;
  std::set<std::pair<std::string, kernels::Int8Path>> seen;
  for (const char* name :
       {"SSE4", "AVX2", "AVX2-VNNI", "AVX512", "AVX512-VNNI", "NEON", "NEON-DOT", kUncapped}) {
    if (name != kUncapped && !kernels::cap_isa(name)) continue;
    compute_as(name);
    if (seen.emplace(kernels::simd_name(), kernels::int8_path()).second) names.emplace_back(name);
  }
  compute_as(kUncapped);
  return names;
}

// Those of different vectors.
inline std::vector<std::string> machine_simd() {
  std::vector<std::string> names;
  std::set<std::string> seen;
  for (const std::string& name : machine_isas()) {
    compute_as(name);
    if (seen.insert(kernels::simd_name()).second) names.push_back(name);
  }
  compute_as(kUncapped);
  return names;
}

// As part of a test's name.
inline std::string isa_test_name(std::string isa) {
  for (char& c : isa) c = c == '-' ? '_' : c;
  return isa;
}

}  // namespace blend::test
