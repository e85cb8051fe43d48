// Foreground: whether a caller waits for what is being computed, so that background work can make
// way.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace blend {

// Thread-safe.
class Foreground {
 public:
  // A caller waits as long as one of these lives.
  class Scope {
   public:
    explicit Scope(Foreground& foreground) : foreground_(foreground) { foreground_.enter(); }
    ~Scope() { foreground_.leave(); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Foreground& foreground_;
  };

  // Blocks until no caller has waited for `quiet`, but at most for `most`: under constant load
  // background work still goes on, slowly. A Hurry ends the wait, as long as it lives.
  void stand_back(std::chrono::milliseconds quiet, std::chrono::milliseconds most) {
    std::unique_lock lock(mutex_);
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
    std::lock_guard lock(mutex_);
    ++n_;
  }
  void leave() {
    {
      std::lock_guard lock(mutex_);
      --n_;
      last_ = Clock::now();
    }
    changed_.notify_all();
  }
  void hurry(int by) {
    {
      std::lock_guard lock(mutex_);
      hurry_ += by;
    }
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  uint32_t n_ = 0;            // scopes; guarded by mutex_
  int hurry_ = 0;             // guarded by mutex_
  Clock::time_point last_{};  // when the last of them ended; guarded by mutex_
};

}  // namespace blend
