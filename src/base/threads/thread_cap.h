// ThreadCap: limits how many of a pool's threads one call may use.
#pragma once

#include <algorithm>
#include <cstdint>

namespace blend {

// While it lives, parallel regions that this thread begins run on at most `n_threads` threads
// of any pool, this one included; 0: on all of them. The innermost counts. Belongs to the thread
// that made it: a thread that computes on behalf of a call is given the call's cap (current()) and
// makes one of its own.
class ThreadCap {
 public:
  explicit ThreadCap(uint32_t n_threads) : outer_(current_) { current_ = n_threads; }
  ~ThreadCap() { current_ = outer_; }
  ThreadCap(const ThreadCap&) = delete;
  ThreadCap& operator=(const ThreadCap&) = delete;

  static uint32_t current() { return current_; }
  // Of n threads, those that this thread's regions may have.
  static uint32_t of(uint32_t n) { return current_ == 0 ? n : std::min(current_, n); }

 private:
  static inline thread_local uint32_t current_ = 0;
  const uint32_t outer_;
};

}  // namespace blend
