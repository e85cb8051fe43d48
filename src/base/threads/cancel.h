// CancelToken: a flag that any thread or signal handler may raise; long work polls it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "base/status.h"

namespace blend {

class CancelToken {
 public:
  void request() { flag_.store(true, std::memory_order_relaxed); }
  void reset() { flag_.store(false, std::memory_order_relaxed); }
  bool requested() const { return flag_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> flag_{false};
  static_assert(std::atomic<bool>::is_always_lock_free, "raised from signal handlers");
};

// Long work reports progress to this and asks it whether to go on; either part may be empty. Used
// only by the thread that made the call.
struct Watch {
  const CancelToken* cancel = nullptr;
  std::function<int32_t(uint64_t done, uint64_t total)> progress;

  Status check() const {
    if (cancel != nullptr && cancel->requested()) {
      return {BLEND_E_CANCELLED, "the call was cancelled"};
    }
    return Status::ok();
  }
  Status report(uint64_t done, uint64_t total) const {
    BLEND_RETURN_IF_ERROR(check());
    if (progress) {
      if (const int32_t rc = progress(done, total); rc != 0) {
        return {BLEND_E_CALLBACK, "the progress callback asked to stop", rc};
      }
    }
    return Status::ok();
  }
};

}  // namespace blend
