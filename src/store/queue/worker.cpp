#include "store/queue/worker.h"

#include <new>
#include <system_error>
#include <utility>

#include "base/threads/start_thread.h"

namespace blend {

Worker::~Worker() { stop(); }

void Worker::stop() {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
    tasks_.clear();
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool Worker::post(std::function<void()> task) {
  {
    const MutexLock lock(mutex_);
    if (stop_) return false;
    if (!thread_.joinable()) {
      try {
        thread_ = start_thread([this] { run(); });
      } catch (const std::system_error&) {
        return false;
      }
    }
    tasks_.push_back(std::move(task));
  }
  changed_.notify_all();
  return true;
}

void Worker::drain() {
  MutexLock lock(mutex_);
  changed_.wait(lock, [&]() BLEND_REQUIRES(mutex_) { return tasks_.empty() && !busy_; });
}

bool Worker::stopping() const {
  const MutexLock lock(mutex_);
  return stop_;
}

void Worker::run() {
  MutexLock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&]() BLEND_REQUIRES(mutex_) { return stop_ || !tasks_.empty(); });
    if (stop_) return;
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    busy_ = true;
    lock.unlock();
    try {
      task();
    } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): its tasks are best effort
    }
    task = {};
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

}  // namespace blend
