// ThreadPool: the compute threads of one context.
//
// A parallel region runs on the calling thread and up to n_threads-1 workers. Regions of different
// callers take turns (a mutex, fair enough at region granularity: microseconds to milliseconds), so
// a context never runs more than n_threads compute threads. Workers spin briefly for the next
// region, then sleep; an idle pool costs nothing.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/status.h"

namespace blend {

// Thread-safe. Must not be destroyed while a region runs. Regions do not nest: a task that calls
// parallel_for on the same pool runs it inline.
class ThreadPool {
 public:
  // n_threads counts the caller; 0 = CPUs in the affinity mask. `on_worker_start`, if given, runs
  // first on every worker (the CPU backend sets the GEMM library's per-thread state there).
  static Result<std::unique_ptr<ThreadPool>> create(uint32_t n_threads,
                                                    std::function<void()> on_worker_start = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  uint32_t n_threads() const { return static_cast<uint32_t>(workers_.size()) + 1; }

  // Calls task(begin, end, thread) over [0, n) in pieces of `grain`, dynamically scheduled (in one
  // piece where there is one thread, or the call is nested: do not size scratch by the grain);
  // `thread` < n_threads() names the executing thread's slot within the region. Tasks must not
  // throw.
  using Task = std::function<void(size_t begin, size_t end, uint32_t thread)>;
  void parallel_for(size_t n, size_t grain, const Task& task);

 private:
  ThreadPool() = default;
  void worker_main(uint32_t thread);
  void run_pieces(uint32_t thread);

  std::vector<std::thread> workers_;
  std::function<void()> on_worker_start_;
  std::mutex region_;  // one region at a time

  // The current region; written under region_ before epoch_ is advanced.
  const Task* task_ = nullptr;
  size_t n_ = 0;
  size_t grain_ = 1;
  std::atomic<size_t> next_{0};
  std::atomic<uint32_t> running_{0};  // workers that have not finished the region
  std::atomic<uint64_t> epoch_{0};
  std::atomic<bool> stop_{false};
  std::mutex sleep_mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
};

}  // namespace blend
