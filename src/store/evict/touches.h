// Touches: pending hits: those of this process whose stamps are not on disk yet.
#pragma once

#include <atomic>
#include <chrono>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/threads/guarded.h"
#include "store/evict/use_record.h"

namespace blend {

// Thread-safe. A hit costs a look-up in a small table; stamps go to disk in batches, so that a read
// does not cost a write. A process that dies loses the stamps of its last batch.
class Touches {
 public:
  struct Touch {
    uint64_t stamp_us = 0;
    uint32_t hits = 0;
  };
  using Map = std::unordered_map<Sha256, Touch, Sha256Hash>;
  static constexpr size_t kBatch = 256;
  static constexpr std::chrono::seconds kPatience{30};

  // True once for each batch, when it is due: the caller then has it written.
  bool add(const Sha256& id, uint64_t stamp_us) {
    const MutexLock lock(mutex_);
    Touch& touch = touches_[id];
    touch.stamp_us = stamp_us;
    ++touch.hits;
    const auto now = std::chrono::steady_clock::now();
    if (due_ || (touches_.size() < kBatch && now - written_ < kPatience)) return false;
    due_ = true;
    return true;
  }
  // The batch that was due could not be written: the next add() returns true again.
  void still_due() {
    const MutexLock lock(mutex_);
    due_ = false;
  }
  // Zeros: no hit since the last batch.
  Touch find(const Sha256& id) const {
    const MutexLock lock(mutex_);
    const auto found = touches_.find(id);
    if (found == touches_.end()) return {};
    // A stamp from a clock that was ahead is corrected in place, or the hit would always be new.
    Touch& touch = found->second;
    touch.stamp_us = not_ahead(touch.stamp_us, next_stamp_us());
    return touch;
  }
  void forget(const Sha256& id) {
    const MutexLock lock(mutex_);
    touches_.erase(id);
  }
  Map take() {
    const MutexLock lock(mutex_);
    due_ = false;
    written_ = std::chrono::steady_clock::now();
    return std::exchange(touches_, {});
  }

 private:
  mutable Mutex mutex_;
  mutable Map touches_ BLEND_GUARDED_BY(mutex_);
  bool due_ BLEND_GUARDED_BY(mutex_) = false;  // add() has returned true
  std::chrono::steady_clock::time_point written_ BLEND_GUARDED_BY(mutex_) =
      std::chrono::steady_clock::now();
};

}  // namespace blend
