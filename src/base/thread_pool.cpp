#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <system_error>

namespace blend {
namespace {

// Long enough to catch the next operation of a layer, short enough not to be seen in `top`.
constexpr int kSpins = 2000;

thread_local const ThreadPool* current_pool = nullptr;  // set while a region's task runs

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

uint32_t cpus_allowed() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    return static_cast<uint32_t>(std::max(1, CPU_COUNT(&set)));
  }
  return std::max(1u, std::thread::hardware_concurrency());
}

}  // namespace

Result<std::unique_ptr<ThreadPool>> ThreadPool::create(uint32_t n_threads,
                                                       std::function<void()> on_worker_start) {
  if (n_threads == 0) n_threads = cpus_allowed();
  std::unique_ptr<ThreadPool> pool(new ThreadPool());
  pool->on_worker_start_ = std::move(on_worker_start);
  pool->workers_.reserve(n_threads - 1);
  try {
    for (uint32_t t = 1; t < n_threads; ++t) {
      pool->workers_.emplace_back([p = pool.get(), t] { p->worker_main(t); });
    }
  } catch (const std::system_error& e) {
    return make_error(BLEND_E_OUT_OF_MEMORY, "cannot start compute thread %zu of %u: %s",
                      pool->workers_.size() + 2, n_threads, e.what());
  }
  return pool;
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(sleep_mutex_);
    stop_.store(true);
  }
  wake_.notify_all();
  for (std::thread& w : workers_) w.join();
}

void ThreadPool::parallel_for(size_t n, size_t grain, const Task& task) {
  if (n == 0) return;
  grain = std::max<size_t>(1, grain);
  if (current_pool == this) {  // nested: the threads are ours already
    task(0, n, 0);
    return;
  }
  std::lock_guard region(region_);
  // Restored below: the caller may be inside a task of another context's pool.
  const ThreadPool* const outer = current_pool;
  current_pool = this;
  task_ = &task;
  n_ = n;
  grain_ = grain;
  if (workers_.empty() || n <= grain) {
    task(0, n, 0);
  } else {
    next_.store(0, std::memory_order_relaxed);
    running_.store(static_cast<uint32_t>(workers_.size()), std::memory_order_relaxed);
    {
      // Under the mutex so that a worker about to sleep cannot miss it.
      std::lock_guard lock(sleep_mutex_);
      epoch_.fetch_add(1, std::memory_order_release);
    }
    wake_.notify_all();
    run_pieces(0);
    for (int i = 0; i < kSpins && running_.load(std::memory_order_acquire) != 0; ++i) pause_cpu();
    if (running_.load(std::memory_order_acquire) != 0) {
      std::unique_lock lock(sleep_mutex_);
      done_.wait(lock, [&] { return running_.load(std::memory_order_acquire) == 0; });
    }
  }
  task_ = nullptr;
  current_pool = outer;
}

void ThreadPool::run_pieces(uint32_t thread) {
  for (;;) {
    const size_t begin = next_.fetch_add(grain_, std::memory_order_relaxed);
    if (begin >= n_) return;
    (*task_)(begin, std::min(n_, begin + grain_), thread);
  }
}

void ThreadPool::worker_main(uint32_t thread) {
  current_pool = this;
  if (on_worker_start_) on_worker_start_();
  uint64_t seen = 0;
  for (;;) {
    for (int i = 0; i < kSpins && epoch_.load(std::memory_order_acquire) == seen; ++i) {
      if (stop_.load(std::memory_order_relaxed)) return;
      pause_cpu();
    }
    if (epoch_.load(std::memory_order_acquire) == seen) {
      std::unique_lock lock(sleep_mutex_);
      wake_.wait(lock,
                 [&] { return stop_.load() || epoch_.load(std::memory_order_acquire) != seen; });
    }
    if (stop_.load()) return;
    ++seen;
    run_pieces(thread);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      std::lock_guard lock(sleep_mutex_);
      done_.notify_one();
    }
  }
}

}  // namespace blend
