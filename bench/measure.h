// What every benchmark needs: a failed call ends the program, a median.
// One shared by all, so that a "median" is the same thing in every table.
#pragma once

#include <algorithm>
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

}  // namespace blend::bench
