// llama.cpp's own benchmark as the peer on the same file: `llama-bench`.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "bench/run_json.h"

namespace blend::bench {

// `program`, or empty where it is not there, which is said on stderr.
inline std::string llama_bench_or_none(const std::string& program) {
  if (program.empty() || std::system(("command -v '" + program + "' >/dev/null").c_str()) == 0) {
    return program;
  }
  std::fprintf(stderr, "llama.cpp skipped: no program %s\n", program.c_str());
  return {};
}

// The program's figure, tokens a second, with flash attention; 0: it is not there, or it failed.
inline double llama_rate(const std::string& program, const std::string& model,
                         std::vector<std::string> what) {
  if (program.empty()) return 0;
  std::vector<std::string> command = {program, "-m", model, "-fa", "1", "-r", "3", "-o", "json"};
  command.insert(command.end(), what.begin(), what.end());
  const nlohmann::json said = run_json(command);
  if (!said.is_array() || said.empty()) return 0;
  return said[0].value("avg_ts", 0.0);
}

// threads: 0: all CPUs.
inline std::string thread_count(uint32_t threads) {
  return std::to_string(threads != 0 ? threads : std::thread::hardware_concurrency());
}

inline double llama_prefill_rate(const std::string& program, const std::string& model,
                                 uint64_t tokens, uint32_t threads) {
  return llama_rate(program, model,
                    {"-t", thread_count(threads), "-p", std::to_string(tokens), "-n", "0"});
}
inline double llama_decode_rate(const std::string& program, const std::string& model,
                                uint64_t context, uint64_t tokens, uint32_t threads) {
  return llama_rate(program, model,
                    {"-t", thread_count(threads), "-p", "0", "-n", std::to_string(tokens), "-d",
                     std::to_string(context)});
}

}  // namespace blend::bench
