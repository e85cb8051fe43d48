// FirstError: the first failure of a parallel region.
#pragma once

#include <atomic>
#include <utility>

#include "base/status.h"
#include "base/threads/guarded.h"

namespace blend::cpu {

// Thread-safe; take() once the region has ended.
class FirstError {
 public:
  void set(Status status) {
    if (status.is_ok()) return;
    const MutexLock lock(mutex_);
    if (status_.is_ok()) status_ = std::move(status);
    failed_.store(true, std::memory_order_relaxed);
  }
  bool failed() const { return failed_.load(std::memory_order_relaxed); }
  Status take() {
    const MutexLock lock(mutex_);
    return std::move(status_);
  }

 private:
  Mutex mutex_;
  std::atomic<bool> failed_{false};
  Status status_ BLEND_GUARDED_BY(mutex_);
};

}  // namespace blend::cpu
