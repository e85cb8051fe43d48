// Foreground: whether a caller waits for what is being computed, so that background work can make
// way.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

#include "base/threads/guarded.h"

namespace blend {

// Thread-safe.
class Foreground {
 public:
  // A caller waits as long as one of these lives.
  class Scope {
   public:
    explicit Scope(Foreground& foreground) : foreground_(&foreground) { foreground_->enter(); }
    Scope(Scope&& other) noexcept : foreground_(std::exchange(other.foreground_, nullptr)) {}
    Scope& operator=(Scope&&) = delete;
    ~Scope() {
      if (foreground_ != nullptr) foreground_->leave();
    }

   private:
    Foreground* foreground_;  // null: moved from
  };

  // Blocks until no caller has waited for `quiet`, but at most for `most`: under constant load
  // background work still goes on, slowly. A Hurry ends the wait, as long as it lives.
  void stand_back(std::chrono::milliseconds quiet, std::chrono::milliseconds most) {
    MutexLock lock(mutex_);
    const auto until = Clock::now() + most;
    while (!hurry_) {
      const auto now = Clock::now();
      if (now >= until) return;
      if (n_ > 0) {
        changed_.wait_until(lock, until);
      } else if (now - last_ >= quiet) {
        return;
      } else {
        changed_.wait_until(lock, std::min(until, last_ + quiet));
      }
    }
  }
  // A caller now waits for the background work itself.
  class Hurry {
   public:
    explicit Hurry(Foreground& foreground) : foreground_(foreground) { foreground_.hurry(1); }
    ~Hurry() { foreground_.hurry(-1); }
    Hurry(const Hurry&) = delete;
    Hurry& operator=(const Hurry&) = delete;

   private:
    Foreground& foreground_;
  };

 private:
  using Clock = std::chrono::steady_clock;

  void enter() {
    const MutexLock lock(mutex_);
    ++n_;
  }
  void leave() {
    {
      const MutexLock lock(mutex_);
      --n_;
      last_ = Clock::now();
    }
    changed_.notify_all();
  }
  void hurry(int by) {
    {
      const MutexLock lock(mutex_);
      hurry_ += by;
    }
    changed_.notify_all();
  }

  Mutex mutex_;
  CondVar changed_;
  uint32_t n_ BLEND_GUARDED_BY(mutex_) = 0;  // scopes
  int hurry_ BLEND_GUARDED_BY(mutex_) = 0;
  Clock::time_point last_ BLEND_GUARDED_BY(mutex_){};  // when the last of the scopes ended
};

}  // namespace blend
