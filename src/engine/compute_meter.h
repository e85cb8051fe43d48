// ComputeMeter: how fast a model's layers are computed here, smoothed over the fuses that did.
#pragma once

#include <cstdint>
#include <mutex>

namespace blend {

// Thread-safe.
class ComputeMeter {
 public:
  // `row_layers`: rows that went through a layer, summed over the layers.
  void add(uint64_t row_layers, uint64_t ns) {
    if (row_layers == 0 || ns == 0) return;
    const double fresh = static_cast<double>(ns) * 1e-9 / static_cast<double>(row_layers);
    std::lock_guard lock(mutex_);
    seconds_ = seconds_ == 0.0 ? fresh : seconds_ + kWeight * (fresh - seconds_);
  }
  // Of one row in one layer. 0: nothing was computed yet.
  double seconds_per_row_layer() const {
    std::lock_guard lock(mutex_);
    return seconds_;
  }

 private:
  static constexpr double kWeight = 0.25;  // one odd fuse does not rule
  mutable std::mutex mutex_;
  double seconds_ = 0.0;
};

}  // namespace blend
