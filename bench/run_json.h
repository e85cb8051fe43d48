// Other programs that print JSON: the peer's, and a benchmark's own in a process by itself.
#pragma once

#include <unistd.h>

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/isa_option.h"

namespace blend::bench {

// The command's output; null if it fails, which it reports on stderr itself.
inline nlohmann::json run_json(const std::vector<std::string>& command) {
  std::string line;
  for (const std::string& word : command) {
    line += " '";
    for (const char c : word) line += c == '\'' ? std::string("'\\''") : std::string(1, c);
    line += "'";
  }
  FILE* pipe = popen(line.c_str(), "r");
  if (pipe == nullptr) return nullptr;
  std::string output;
  std::array<char, 4096> buffer{};
  while (const size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
    output.append(buffer.data(), n);
  }
  if (pclose(pipe) != 0) return nullptr;
  auto out = nlohmann::json::parse(output, nullptr, false);
  return out.is_discarded() ? nlohmann::json() : out;
}

// This program with other arguments.
inline nlohmann::json run_self(std::vector<std::string> arguments) {
  std::array<char, 4096> path{};
  const ssize_t n = readlink("/proc/self/exe", path.data(), path.size());
  if (n <= 0) throw std::runtime_error("cannot find this program's file");
  arguments.insert(arguments.begin(), std::string(path.data(), static_cast<size_t>(n)));
  auto out = run_json(arguments);
  if (out.is_null()) throw std::runtime_error("a measurement in a process of its own failed");
  return out;
}

// The output of llama.cpp's script, with "differs" where its instruction set is not ours; that is
// reported on stderr too, once: such a ratio is of machines rather than of programs.
inline nlohmann::json checked_peer(nlohmann::json peer) {
  if (!peer.is_object()) return peer;
  const std::string differs = peer_differs(peer.value("system_info", std::string()));
  if (differs.empty()) return peer;
  static bool said = false;
  if (!said) std::fprintf(stderr, "WARNING: not the same instruction set: %s\n", differs.c_str());
  said = true;
  peer["differs"] = differs;
  return peer;
}

// llama.cpp's prefill of `tokens` on the same file, by bench/llama_cpp_prefill.py; null if it is
// not installed. flash: "on", "off", or "both": the faster.
inline nlohmann::json llama_cpp_prefill(const std::string& python, const std::string& model,
                                        size_t tokens, uint32_t threads, int repeat,
                                        const std::string& flash) {
  return checked_peer(
      run_json({python, BLEND_BENCH_DIR "/llama_cpp_prefill.py", model, std::to_string(tokens),
                std::to_string(threads), std::to_string(repeat), flash}));
}

}  // namespace blend::bench
