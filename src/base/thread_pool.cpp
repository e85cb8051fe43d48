#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <system_error>

namespace blend {
namespace {

thread_local const ThreadPool* current_pool = nullptr;  // set while a region's task runs

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
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

Result<std::unique_ptr<ThreadPool>> ThreadPool::create(uint32_t n_threads) {
  if (n_threads == 0) n_threads = cpus_allowed();
  std::unique_ptr<ThreadPool> pool(new ThreadPool());
  pool->spins_ = n_threads <= cpus_allowed();
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
  if (workers_.empty() || n <= grain) {
    task(0, n, 0);
  } else {
    task_ = &task;
    n_ = n;
    grain_ = grain;
    next_.store(0, std::memory_order_relaxed);
    // Closed and nobody inside: no other thread writes state_ now.
    const uint64_t number = state_.load(std::memory_order_relaxed) / kRegion + 1;
    state_.store(number * kRegion | kOpen);
    wake((n - 1) / grain + 1);
    run_pieces(0);
    state_.fetch_and(~kOpen);
    const auto left = [&] { return (state_.load() & kInside) == 0; };
    if (!spin_until(left)) {
      caller_sleeps_.store(true);
      std::unique_lock lock(sleep_mutex_);
      done_.wait(lock, left);
      caller_sleeps_.store(false);
    }
  }
  current_pool = outer;
}

// Of the sleeping workers, as many as there are pieces for beside those awake.
void ThreadPool::wake(size_t pieces) {
  const size_t asleep = sleepers_.load();
  if (asleep == 0) return;
  const size_t awake = 1 + workers_.size() - std::min(asleep, workers_.size());
  if (pieces <= awake) return;
  // Under the mutex so that a worker that looked before the region opened is waiting by now.
  { std::lock_guard lock(sleep_mutex_); }
  if (pieces - awake >= asleep) {
    wake_.notify_all();
  } else {
    for (size_t i = awake; i < pieces; ++i) wake_.notify_one();
  }
}

template <typename Done>
bool ThreadPool::spin_until(Done done) const {
  if (done()) return true;
  if (!spins_) return false;
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 16; ++i) {
      pause_cpu();
      if (done()) return true;
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

void ThreadPool::run_pieces(uint32_t thread) {
  for (;;) {
    const size_t begin = next_.fetch_add(grain_, std::memory_order_relaxed);
    if (begin >= n_) return;
    (*task_)(begin, std::min(n_, begin + grain_), thread);
  }
}

bool ThreadPool::join(uint64_t& seen) {
  uint64_t state = state_.load();
  while ((state & kOpen) != 0 && state / kRegion != seen) {
    if (!state_.compare_exchange_weak(state, state + 1)) continue;
    seen = state / kRegion;
    return true;
  }
  return false;
}

void ThreadPool::leave() {
  if ((state_.fetch_sub(1) & kInside) != 1 || !caller_sleeps_.load()) return;
  std::lock_guard lock(sleep_mutex_);
  done_.notify_one();
}

void ThreadPool::wait_for_region(uint64_t seen) {
  const auto begun = [&] {
    if (stop_.load()) return true;
    const uint64_t state = state_.load();
    return (state & kOpen) != 0 && state / kRegion != seen;
  };
  if (spin_until(begun)) return;
  std::unique_lock lock(sleep_mutex_);
  sleepers_.fetch_add(1);
  wake_.wait(lock, begun);
  sleepers_.fetch_sub(1);
}

void ThreadPool::worker_main(uint32_t thread) {
  current_pool = this;
  uint64_t seen = 0;  // the last region that this worker was in
  while (!stop_.load()) {
    if (join(seen)) {
      run_pieces(thread);
      leave();
    } else {
      wait_for_region(seen);
    }
  }
}

}  // namespace blend
