// Workers: limits how many requests compute at a time, and how many may wait for that.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "thread.h"

namespace blend_cli::serve {

// Thread-safe. First come, first served.
class Workers {
 public:
  // Throws std::system_error.
  Workers(size_t n_running, size_t n_waiting) : most_(n_running), most_waiting_(n_waiting) {
    try {
      for (size_t i = 0; i < n_running; ++i) {
        threads_.push_back(std::make_unique<Thread>([this] { work(); }));
      }
    } catch (...) {
      end();
      throw;
    }
  }
  // Waiting jobs are done first.
  ~Workers() { end(); }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // The last act of a job, when its place is free again: a client told that it is done may come
  // with another at once.
  using Last = std::function<void()>;
  struct Job {
    std::function<Last()> run;           // must not throw
    std::function<bool()> is_abandoned;  // its client has gone: run() would end at once
  };

  // False: too many wait.
  bool submit(Job job) {
    {
      const std::lock_guard lock(mutex_);
      if (has_room()) return push(std::move(job));
    }
    sweep();
    const std::lock_guard lock(mutex_);
    return has_room() && push(std::move(job));
  }
  // Drops abandoned jobs, freeing their places.
  void sweep() {
    std::vector<Job> abandoned;
    {
      const std::lock_guard lock(mutex_);
      for (auto it = jobs_.begin(); it != jobs_.end();) {
        if (!it->is_abandoned()) {
          ++it;
          continue;
        }
        abandoned.push_back(std::move(*it));
        it = jobs_.erase(it);
      }
    }
    for (Job& job : abandoned) {
      const Last last = job.run();
      job = {};
      last();
    }
  }
  bool idle() const {
    const std::lock_guard lock(mutex_);
    return running_ == 0 && jobs_.empty();
  }
  size_t running() const {
    const std::lock_guard lock(mutex_);
    return running_;
  }
  size_t waiting() const {
    const std::lock_guard lock(mutex_);
    return n_waiting();
  }
  size_t most() const { return most_; }
  size_t most_waiting() const { return most_waiting_; }

 private:
  // A job that a free thread is about to take does not wait.
  size_t n_waiting() const {
    const size_t free = most_ - running_;
    return jobs_.size() > free ? jobs_.size() - free : 0;
  }
  bool has_room() const { return running_ + jobs_.size() < most_ + most_waiting_; }
  bool push(Job job) {
    jobs_.push_back(std::move(job));
    changed_.notify_one();
    return true;
  }
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return ending_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      Job job = std::move(jobs_.front());
      jobs_.pop_front();
      ++running_;
      lock.unlock();
      Last last = job.run();
      job = {};  // frees what it holds before another begins
      lock.lock();
      --running_;
      lock.unlock();
      last();
      last = nullptr;
      lock.lock();
    }
  }
  void end() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
      changed_.notify_all();
    }
    threads_.clear();
  }

  const size_t most_;
  const size_t most_waiting_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  size_t running_ = 0;
  bool ending_ = false;
  std::vector<std::unique_ptr<Thread>> threads_;
};

}  // namespace blend_cli::serve
