// Stopwatch: nanoseconds since a fuse began, the time base of everything its info reports.
#pragma once

#include <chrono>
#include <cstdint>

namespace blend {

class Stopwatch {
 public:
  uint64_t now_ns() const {
    return static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start_).count());
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

}  // namespace blend
