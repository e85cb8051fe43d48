// ReadMeter: how fast a store's layers come, smoothed over the fuses that read them.
#pragma once

#include <cstdint>
#include <mutex>

namespace blend {

// Thread-safe.
class ReadMeter {
 public:
  // `ns`: the reader's own time, waiting for room in the ring left out.
  void add(uint64_t bytes, uint64_t ns) {
    if (bytes == 0 || ns == 0) return;
    const double fresh = static_cast<double>(bytes) * 1e9 / static_cast<double>(ns);
    std::lock_guard lock(mutex_);
    bytes_per_s_ = bytes_per_s_ == 0.0 ? fresh : bytes_per_s_ + kWeight * (fresh - bytes_per_s_);
  }
  // 0: nothing was read yet.
  double bytes_per_s() const {
    std::lock_guard lock(mutex_);
    return bytes_per_s_;
  }

 private:
  // A change of the device shows within a handful of fuses, one odd read does not rule.
  static constexpr double kWeight = 0.25;
  mutable std::mutex mutex_;
  double bytes_per_s_ = 0.0;
};

}  // namespace blend
