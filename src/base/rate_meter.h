// RateMeter: how much of something is done a second, smoothed over the times it was done.
//
// A store's bytes as fuses read them, a model's rows as they compute them: what the controller
// (src/control) reckons with.
#pragma once

#include <cstdint>
#include <mutex>

namespace blend {

// Thread-safe.
class RateMeter {
 public:
  // `amount` took `ns` of the worker's own time, waiting for others left out.
  void add(uint64_t amount, uint64_t ns) {
    if (amount == 0 || ns == 0) return;
    const double fresh = static_cast<double>(amount) * 1e9 / static_cast<double>(ns);
    std::lock_guard lock(mutex_);
    per_s_ = per_s_ == 0.0 ? fresh : per_s_ + kWeight * (fresh - per_s_);
  }
  // 0: nothing was done yet.
  double per_second() const {
    std::lock_guard lock(mutex_);
    return per_s_;
  }

 private:
  // A change shows within a handful of calls, one odd one does not rule.
  static constexpr double kWeight = 0.25;
  mutable std::mutex mutex_;
  double per_s_ = 0.0;
};

}  // namespace blend
