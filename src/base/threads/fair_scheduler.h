// FairScheduler: decides which parallel regions of a pool may run now.
//
// A region asks for as many threads as it can use and gets all of them or waits, first come, first
// served. A region for which enough threads are free takes them without looking at the queue,
// because waking a waiter takes time, and the threads would be idle for that time at each of the
// thousands of regions in a token; but once the first in the queue has waited for kPatience nobody
// passes it any more. So small regions that overlap without end delay a large one by kPatience and
// by what is then running, and two callers that want all the threads alternate every kPatience.
//
// A series of small regions that a caller waits for, one after the other, would so wait for a large
// one again and again. Its caller therefore reserves threads for them (reserve()): meanwhile
// other regions begin only beside those, and the series' own need no permission.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "base/threads/guarded.h"

namespace blend {

// Thread-safe. Nothing is allocated.
class FairScheduler {
 public:
  static constexpr uint32_t kMostThreads = 1024;
  static constexpr std::chrono::milliseconds kPatience{1};

  // n_threads: 1 .. kMostThreads.
  explicit FairScheduler(uint32_t n_threads) : state_(n_threads) {}
  FairScheduler(const FairScheduler&) = delete;
  FairScheduler& operator=(const FairScheduler&) = delete;

  // Blocks until `width` threads, at most n_threads, are free and takes them: the caller and
  // width-1 others. Returns how many others the regions have that run beside this one. A thread
  // that has a turn must not ask for another.
  // reserved: they are among those that this caller reserved.
  uint32_t enter(uint32_t width, bool reserved = false);
  // Gives them back.
  void leave(uint32_t width, bool reserved = false);

  // Reserves n threads from now on; those in use are waited for when they are needed.
  void reserve(uint32_t n) { state_.fetch_add(n * kKept); }
  // Ends it. Returns whether others wait for a turn.
  bool release(uint32_t n);

 private:
  // Fields of state_: free threads; threads taken by regions besides their callers; whether a
  // waiter exists; whether the first waiter may no longer be overtaken.
  static constexpr uint64_t kFree = 0xffff, kOther = 1 << 16, kOthers = 0xffff;
  static constexpr uint64_t kWaiting = uint64_t{1} << 32, kPassNoMore = uint64_t{1} << 33;
  // Field of state_: threads that are reserved and not taken, of all callers.
  static constexpr uint64_t kKept = uint64_t{1} << 34;

  struct Waiter {
    uint32_t width;
    bool reserved;
    Waiter* next = nullptr;
    CondVar turn;
  };

  // Added to state_ when a turn ends.
  static uint64_t worth(uint32_t width, bool reserved) {
    return width - (width - 1) * kOther + (reserved ? width * kKept : 0);
  }
  // Whether a state has enough threads.
  static bool fits(uint64_t state, uint32_t width, bool reserved) {
    return (state & kFree) >= width + (reserved ? 0 : state / kKept);
  }
  bool take(uint32_t width, bool reserved, uint64_t barred, uint32_t& others);
  void wait_in_line(uint32_t width, bool reserved, uint32_t& others);

  std::atomic<uint64_t> state_;
  Mutex mutex_;
  Waiter* first_ BLEND_GUARDED_BY(mutex_) BLEND_PT_GUARDED_BY(mutex_) = nullptr;
  Waiter* last_ BLEND_GUARDED_BY(mutex_) BLEND_PT_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace blend
