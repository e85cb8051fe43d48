// --isa: the instruction set that a benchmark computes with, and the facts printed beside every
// figure. A peer is compared by its own instruction set, which is checked against ours.
#pragma once

#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "cpu/isa.h"

namespace blend::bench {

inline constexpr const char* kIsaHelp =
    "compute as a machine with no more than SSE4, AVX2, AVX2-VNNI, AVX512, AVX512-VNNI, NEON or "
    "NEON-DOT would; \"\": all that this one has";

// To be called before anything is computed. Empty: no cap.
inline void cap_isa(const std::string& name) {
  if (name.empty()) return;
  if (!kernels::cap_isa(name.c_str())) {
    throw std::runtime_error("'" + name + "' is no instruction set of this architecture");
  }
  // oneDNN, where it is measured beside ours, under the same cap.
  static const std::map<std::string, const char*> kOneDnn = {{"SSE4", "SSE41"},
                                                             {"AVX2", "AVX2"},
                                                             {"AVX2-VNNI", "AVX2_VNNI"},
                                                             {"AVX512", "AVX512_CORE"},
                                                             {"AVX512-VNNI", "AVX512_CORE_VNNI"}};
  const auto found = kOneDnn.find(name);
  if (found != kOneDnn.end()) setenv("ONEDNN_MAX_CPU_ISA", found->second, 1);
}

// From /proc/cpuinfo, with the numbers that tell apart what hypervisors give one name.
inline std::string cpu_model() {
  std::map<std::string, std::string> fields;
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line) && !line.empty();) {  // the first CPU
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    const size_t end = line.find_last_not_of("\t ", colon - 1);
    fields[line.substr(0, end + 1)] = line.substr(colon + 2);
  }
  const auto field = [&](const char* name) {
    const auto found = fields.find(name);
    return found == fields.end() ? std::string("?") : found->second;
  };
  if (fields.count("model name") == 0) {  // ARM
    return "implementer " + field("CPU implementer") + " part " + field("CPU part");
  }
  return field("model name") + ", family " + field("cpu family") + " model " + field("model");
}

inline std::string int8_name() { return kernels::int8_path_name(kernels::int8_path()); }

// Facts in every JSON about the origin of its figures.
inline nlohmann::json machine() {
  return {{"cpu", cpu_model()}, {"simd", kernels::simd_name()}, {"int8", int8_name()}};
}

// One line for the table's head.
inline std::string machine_line() {
  return cpu_model() + "; " + kernels::simd_name() + ", int8 by " + int8_name();
}

// Instruction sets that llama.cpp reports ("AVX2 = 1 | AVX512 = 1 | ...") and we lack, or the other
// way round; empty: the same. Only x86 has sets that differ.
inline std::string peer_differs(const std::string& system_info) {
  const std::string simd = kernels::simd_name();
  if (simd.rfind("AVX", 0) != 0 && simd.rfind("SS", 0) != 0) return {};
  const auto has = [&](const char* flag) {
    return (" " + system_info).find(std::string(" ") + flag + " = 1") != std::string::npos;
  };
  const auto compare = [](const char* what, bool theirs, bool ours) -> std::string {
    if (theirs == ours) return {};
    return std::string(theirs ? "llama.cpp has " : "llama.cpp lacks ") + what +
           (ours ? ", ours has it" : ", ours is without");
  };
  if (auto said = compare("AVX-512", has("AVX512"), simd == "AVX-512"); !said.empty()) return said;
  if (auto said = compare("AVX2", has("AVX2"), simd.rfind("AVX", 0) == 0); !said.empty()) {
    return said;
  }
  return compare("VNNI", has("AVX512_VNNI") || has("AVX_VNNI"), int8_name() == "VNNI");
}

}  // namespace blend::bench
