// The shares of the drift correction from sums over rows, for every backend.
#pragma once

#include <algorithm>

#include "backend/drift.h"

namespace blend {

// sums: [2 * rows], of K and V of each row in turn, with `both` and `predicted`
// (kernels/cpu/drift.h).
template <typename Sums>
DriftShare share_of(const Sums* sums, size_t rows) {
  double both[2] = {0, 0}, predicted[2] = {0, 0};
  for (size_t i = 0; i < 2 * rows; ++i) {
    both[i % 2] += static_cast<double>(sums[i].both);
    predicted[i % 2] += static_cast<double>(sums[i].predicted);
  }
  // If either is NaN the share is 0.
  const auto share = [&](int which) {
    const double factor = predicted[which] > 0 ? both[which] / predicted[which] : 0.0;
    return factor > 0 ? static_cast<float>(std::min(factor, 1.0)) : 0.0f;
  };
  return {share(0), share(1)};
}

}  // namespace blend
