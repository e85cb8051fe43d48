// Slots: how many requests compute at a time, and how many may wait for that.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>

namespace blend_cli::serve {

// Thread-safe. Must outlive what it gave.
class Slots {
 public:
  Slots(size_t n_running, size_t n_waiting) : most_(n_running), most_waiting_(n_waiting) {}

  // Given back by its destructor. Waits for a turn, first come first served; null: too many wait.
  std::shared_ptr<void> take() {
    std::unique_lock lock(mutex_);
    const bool free = running_ < most_ && waiting_ == 0;
    if (!free && waiting_ >= most_waiting_) return nullptr;
    const size_t turn = next_++;
    ++waiting_;
    changed_.wait(lock, [&] { return running_ < most_ && turn == served_; });
    --waiting_;
    ++served_;
    ++running_;
    changed_.notify_all();
    lock.unlock();
    return std::shared_ptr<void>(this, [this](void*) { give_back(); });
  }
  bool idle() const {
    const std::lock_guard lock(mutex_);
    return running_ == 0 && waiting_ == 0;
  }
  size_t running() const {
    const std::lock_guard lock(mutex_);
    return running_;
  }
  size_t waiting() const {
    const std::lock_guard lock(mutex_);
    return waiting_;
  }
  size_t most() const { return most_; }
  size_t most_waiting() const { return most_waiting_; }

 private:
  void give_back() {
    const std::lock_guard lock(mutex_);
    --running_;
    changed_.notify_all();
  }

  const size_t most_;
  const size_t most_waiting_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  size_t running_ = 0;
  size_t waiting_ = 0;
  size_t next_ = 0;    // turn of who comes next
  size_t served_ = 0;  // turn that is due
};

}  // namespace blend_cli::serve
