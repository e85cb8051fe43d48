// Worker: the thread on which a store writes stamps of hits and reads ahead.
#pragma once

#include <deque>
#include <functional>
#include <thread>

#include "base/threads/guarded.h"

namespace blend {

// Thread-safe. The thread starts with the first task. Must not be destroyed in a forked child (the
// thread is not there): leak it.
class Worker {
 public:
  Worker() = default;
  ~Worker();  // stops
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Runs in the order of arrival. False: no thread could be started; the task is dropped. A task
  // without memory ends there; it must throw nothing else.
  bool post(std::function<void()> task);
  // Waits for the tasks posted before.
  void drain();
  // Finishes the task under way and drops the others; tasks posted from now on are dropped too.
  void stop();
  // Long tasks call this and end early.
  bool stopping() const;

 private:
  void run();

  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> tasks_ BLEND_GUARDED_BY(mutex_);
  bool busy_ BLEND_GUARDED_BY(mutex_) = false;
  bool stop_ BLEND_GUARDED_BY(mutex_) = false;
  // Started with the mutex held; joined without it, when nothing starts it any more.
  std::thread thread_;
};

}  // namespace blend
