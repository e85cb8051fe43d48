#include "base/threads/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/threads/leave_cpu.h"
#include "base/threads/start_thread.h"
#include "base/threads/thread_cap.h"

namespace blend {
namespace {

thread_local const ThreadPool* current_pool = nullptr;  // set while a region's task runs
thread_local const ThreadPool* running_on = nullptr;    // on which this thread has a Run

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  // `yield` is a no-op on cores without SMT; this takes about as long as x86's pause.
  asm volatile("isb");
#endif
}

uint32_t cpus_allowed() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    return static_cast<uint32_t>(std::max(1, CPU_COUNT(&set)));
  }
  return std::max(1u, std::thread::hardware_concurrency());
}

// In ascending order.
Result<std::vector<int>> cpus_to_pin_to(uint32_t n_threads) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) {
    return make_errno(BLEND_E_IO, errno, "cannot pin threads: this thread's CPUs are not known");
  }
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  if (cpus.size() >= n_threads) return cpus;
  return make_error(BLEND_E_INVALID_ARGUMENT,
                    "cannot pin %u threads: this thread may run on %zu CPUs; ask for at most as "
                    "many threads, or leave them unpinned",
                    n_threads, cpus.size());
}

Status pin_thread(std::thread& thread, int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  const int error = pthread_setaffinity_np(thread.native_handle(), sizeof set, &set);
  if (error == 0) return Status::ok();
  return make_errno(BLEND_E_IO, error, "cannot pin a compute thread to CPU %d", cpu);
}

}  // namespace

ThreadPool::Run::Run(ThreadPool& pool) : pool_(&pool), n_(ThreadCap::of(pool.n_threads())) {
  pool.scheduler_.reserve(n_);
  running_on = &pool;
}

bool ThreadPool::Run::end() {
  if (pool_ == nullptr) return false;
  running_on = nullptr;
  return std::exchange(pool_, nullptr)->scheduler_.release(n_);
}

ThreadPool::ThreadPool(uint32_t n_threads)
    : cpus_(std::make_unique<std::atomic<int>[]>(n_threads)),
      spins_(n_threads <= cpus_allowed()),
      n_regions_(n_threads / 2),
      regions_(std::make_unique<Region[]>(n_regions_)),
      scheduler_(n_threads) {
  for (uint32_t t = 0; t < n_threads; ++t) cpus_[t].store(-1, std::memory_order_relaxed);
}

Result<std::unique_ptr<ThreadPool>> ThreadPool::create(const PoolOptions& options) {
  uint32_t n_threads = options.n_threads;
  if (n_threads == 0) n_threads = std::min(cpus_allowed(), kMostThreads);
  if (n_threads > kMostThreads) {
    return make_error(BLEND_E_INVALID_ARGUMENT,
                      "n_threads %u is more than %u; 0 takes the CPUs of this process", n_threads,
                      kMostThreads);
  }
  std::unique_ptr<ThreadPool> pool(new ThreadPool(n_threads));
  BLEND_RETURN_IF_ERROR(pool->start_workers(n_threads, options.pin));
  return pool;
}

Status ThreadPool::start_workers(uint32_t n_threads, bool pin) {
  std::vector<int> cpus;
  if (pin) {
    BLEND_ASSIGN(cpus, cpus_to_pin_to(n_threads));
  }
  workers_.reserve(n_threads - 1);
  try {
    for (uint32_t t = 1; t < n_threads; ++t) {
      workers_.push_back(start_thread(
          [this, t, seen = std::vector<uint64_t>(n_regions_)]() mutable { worker_main(t, seen); }));
      if (pin) BLEND_RETURN_IF_ERROR(pin_thread(workers_.back(), cpus[t]));
    }
  } catch (const std::system_error& e) {
    return make_error(BLEND_E_OUT_OF_MEMORY, "cannot start compute thread %zu of %u: %s",
                      workers_.size() + 2, n_threads, e.what());
  }
  return Status::ok();
}

ThreadPool::~ThreadPool() {
  {
    const MutexLock lock(sleep_mutex_);
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
  const uint32_t most = ThreadCap::of(n_threads());
  const auto width = static_cast<uint32_t>(std::min<size_t>(most, (n - 1) / grain + 1));
  const bool reserved = running_on == this;
  const uint32_t others = scheduler_.enter(width, reserved);
  // Restored below: the caller may be inside a task of another context's pool.
  const ThreadPool* const outer = current_pool;
  current_pool = this;
  if (width > 1) {
    run(n, grain, task, width, others);
  } else if (workers_.empty()) {
    task(0, n, 0);
  } else {
    for (size_t begin = 0; begin < n; begin += std::min(grain, n - begin)) {
      task(begin, begin + std::min(grain, n - begin), 0);
    }
  }
  current_pool = outer;
  scheduler_.leave(width, reserved);
}

void ThreadPool::run(size_t n, size_t grain, const Task& task, uint32_t width, uint32_t others) {
  Region& region = take_region();
  region.task = &task;
  region.n = n;
  region.grain = grain;
  region.width = width;
  region.cpu = this_cpu();
  region.next.store(0, std::memory_order_relaxed);
  // Taken, closed and empty: no other thread writes the state now.
  const uint64_t number = region.state.load(std::memory_order_relaxed) / kNumber + 1;
  region.state.store(number * kNumber | kOpen | (width - 1) * kSeat);
  wake(width, others);
  region.run_pieces(0);
  region.state.fetch_and(~kOpen);
  const auto left = [&] { return (region.state.load() & kInside) == 0; };
  if (!spin_until(left)) {
    region.caller_sleeps.store(true);
    MutexLock lock(sleep_mutex_);
    region.done.wait(lock, left);
    region.caller_sleeps.store(false);
  }
  region.taken.store(false, std::memory_order_release);
}

// A free region always exists: each that is taken belongs to a turn of two threads or more, ours is
// one of those, and there are no more such turns at a time than regions. A pass may miss a region
// released after it was looked at; the next pass finds it.
ThreadPool::Region& ThreadPool::take_region() {
  for (size_t i = 0;; i = i + 1 < n_regions_ ? i + 1 : 0) {
    std::atomic<bool>& taken = regions_[i].taken;
    if (taken.load(std::memory_order_relaxed)) continue;
    if (taken.exchange(true, std::memory_order_acquire)) continue;
    // Sequentially consistent even where another caller has added it: a worker that does not find
    // this region in use must be among the sleepers that run() sees.
    size_t in_use = regions_in_use_.load();
    while (in_use <= i && !regions_in_use_.compare_exchange_weak(in_use, i + 1)) {
    }
    return regions_[i];
  }
}

// Wakes as many sleeping workers as the region has room for besides those awake. `others` of these
// may be at other regions.
void ThreadPool::wake(uint32_t width, uint32_t others) {
  const size_t asleep = sleepers_.load();
  if (asleep == 0) return;
  const size_t busy = std::min<size_t>(workers_.size(), asleep + others);
  const size_t free = 1 + workers_.size() - busy;  // and this thread
  if (width <= free) return;
  // Under the mutex so that a worker that looked before the region opened is waiting by now.
  { const MutexLock lock(sleep_mutex_); }
  if (width - free >= asleep) {
    wake_.notify_all();
  } else {
    for (size_t i = free; i < width; ++i) wake_.notify_one();
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

void ThreadPool::Region::run_pieces(uint32_t thread) {
  for (;;) {
    const size_t begin = next.fetch_add(grain, std::memory_order_relaxed);
    if (begin >= n) return;
    (*task)(begin, std::min(n, begin + grain), thread);
  }
}

bool ThreadPool::Region::joinable(uint64_t state, uint64_t seen) {
  return (state & kOpen) != 0 && (state / kSeat & kSeats) != 0 && state / kNumber != seen;
}

// A worker leaves only when the pieces are gone, so it joins once, and no other has its seat.
bool ThreadPool::Region::join(uint64_t& seen, uint32_t& seats_left) {
  uint64_t now = state.load();
  while (joinable(now, seen)) {
    if (!state.compare_exchange_weak(now, now - kSeat + 1)) continue;
    seen = now / kNumber;
    seats_left = static_cast<uint32_t>(now / kSeat & kSeats);
    return true;
  }
  return false;
}

void ThreadPool::leave(Region& region) {
  if ((region.state.fetch_sub(1) & kInside) != 1 || !region.caller_sleeps.load()) return;
  // Another caller may have the region by now: it looks again and sleeps on.
  const MutexLock lock(sleep_mutex_);
  region.done.notify_one();
}

void ThreadPool::wait_for_region(const std::vector<uint64_t>& seen) {
  const auto begun = [&] {
    if (stop_.load()) return true;
    const size_t in_use = regions_in_use_.load();
    for (size_t i = 0; i < in_use; ++i) {
      if (Region::joinable(regions_[i].state.load(), seen[i])) return true;
    }
    return false;
  };
  if (spin_until(begun)) return;
  MutexLock lock(sleep_mutex_);
  sleepers_.fetch_add(1);
  wake_.wait(lock, begun);
  sleepers_.fetch_sub(1);
}

// In a pool of more threads than CPUs, workers inevitably share their callers' CPUs.
void ThreadPool::take_place(uint32_t worker, int caller_cpu,
                            std::chrono::steady_clock::time_point& last) {
  const int cpu = this_cpu();
  // Written only if changed: the other workers' CPUs are in the same cache line.
  if (cpus_[worker].load(std::memory_order_relaxed) != cpu) {
    cpus_[worker].store(cpu, std::memory_order_relaxed);
  }
  if (cpu != caller_cpu || !spins_) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - last < kSettles) return;
  last = now;
  cpu_set_t taken;
  CPU_ZERO(&taken);
  for (uint32_t other = 1; other < n_threads(); ++other) {
    const int at = cpus_[other].load(std::memory_order_relaxed);
    if (at >= 0 && at < CPU_SETSIZE) CPU_SET(at, &taken);
  }
  leave_cpu(cpu, taken);
}

void ThreadPool::worker_main(uint32_t worker, std::vector<uint64_t>& seen) {
  current_pool = this;
  std::chrono::steady_clock::time_point made_room;
  while (!stop_.load()) {
    bool joined = false;
    const size_t in_use = regions_in_use_.load();
    for (size_t i = 0; i < in_use; ++i) {
      Region& region = regions_[i];
      uint32_t seats_left = 0;
      if (!region.join(seen[i], seats_left)) continue;
      joined = true;
      take_place(worker, region.cpu, made_room);
      // A worker keeps its slot, and with it the scratch in its cache, if all workers can join.
      const bool all = region.width == n_threads();
      region.run_pieces(all ? worker : region.width - seats_left);
      leave(region);
    }
    if (!joined) wait_for_region(seen);
  }
}

}  // namespace blend
