// Visit: one request and its answer, as the log tells of them.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "trace_context.h"

namespace blend_cli::serve {

// Told when the last of those who work on it lets go of it. Each member has one writer at a time:
// the connection writes the status, the bytes and the times of the answer, the thread that computes
// writes what it cost.
struct Visit {
  using Clock = std::chrono::steady_clock;
  using Told = std::function<void(const Visit&)>;  // must not throw

  Visit() = default;
  ~Visit() {
    if (told) told(*this);
  }
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;

  // The parts of a request that a log has. Not its query, which may have a key in it.
  std::string id;
  std::optional<TraceContext> trace;
  std::string method;  // "": the head was not read
  std::string path;
  Clock::time_point begin = Clock::now();

  // Of the connection.
  int status = 0;      // as it was sent; 0: nothing was
  bool whole = false;  // all of the answer was sent
  uint64_t bytes = 0;  // sent, the head included
  Clock::time_point end = begin;

  // Of the thread that computes.
  std::string tenant;
  std::optional<Clock::time_point> taken;  // when its turn came
  struct Cost {
    uint64_t prompt_tokens = 0;
    uint64_t cached_tokens = 0;
    uint64_t recomputed_tokens = 0;
    uint64_t completion_tokens = 0;
    uint64_t ttft_ns = 0;
  };
  std::optional<Cost> cost;
  std::string error;  // what went wrong here: not what was wrong with the request

  Told told;
};

}  // namespace blend_cli::serve
