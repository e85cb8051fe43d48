// Helpers of every benchmark: a failed call ends the program, a median, clocks.
// One shared by all, so that a "median" is the same thing in every table.
#pragma once

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/status.h"

namespace blend::bench {

inline void must(const Status& status) {
  if (!status.is_ok()) throw std::runtime_error(status.message());
}
template <typename T>
T must(Result<T> result) {
  must(result.status());
  return std::move(result.value());
}

// The upper one of the two in the middle; 0 of nothing.
inline double median(std::vector<double> v) {
  if (v.empty()) return 0;
  const auto middle = v.begin() + static_cast<int64_t>(v.size() / 2);
  std::nth_element(v.begin(), middle, v.end());
  return *middle;
}

inline double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}
// CPU time of all threads, in the program and in the kernel for it.
inline double cpu_seconds() {
  rusage u{};
  getrusage(RUSAGE_SELF, &u);
  const auto of = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return of(u.ru_utime) + of(u.ru_stime);
}

}  // namespace blend::bench
