// RateMeter: amount per second, smoothed over the last measurements.
//
// A store's bytes as fuses read them, a model's rows as they compute them: input of the controller
// (src/control).
#pragma once

#include <cstdint>

#include "base/threads/guarded.h"

namespace blend {

// Thread-safe.
class RateMeter {
 public:
  // `amount` took `ns` of the worker's own time, without waiting for others.
  void add(uint64_t amount, uint64_t ns) {
    if (amount == 0 || ns == 0) return;
    const double fresh = static_cast<double>(amount) * 1e9 / static_cast<double>(ns);
    const MutexLock lock(mutex_);
    per_s_ = per_s_ == 0.0 ? fresh : per_s_ + kWeight * (fresh - per_s_);
  }
  // 0: nothing was measured yet.
  double per_second() const {
    const MutexLock lock(mutex_);
    return per_s_;
  }

 private:
  // A change shows within a handful of calls, but one outlier does not dominate.
  static constexpr double kWeight = 0.25;
  mutable Mutex mutex_;
  double per_s_ BLEND_GUARDED_BY(mutex_) = 0.0;
};

}  // namespace blend
