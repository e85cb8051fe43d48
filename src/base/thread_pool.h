// ThreadPool: the compute threads of one context.
//
// A parallel region runs on the calling thread and up to n_threads-1 workers. Regions of different
// callers take turns (a mutex, fair enough at region granularity: microseconds to milliseconds), so
// a context never runs more than n_threads compute threads.
//
// A region never waits for a thread that has not begun: workers join it while there are pieces, and
// its end waits only for those that joined. So a worker that sleeps, or whose CPU another process
// has, costs a small region nothing. Workers that find no region spin for kSpin, which bridges the
// gaps between the operations of a layer and between tokens, and then sleep: an idle pool costs
// nothing. A pool of more threads than the process has CPUs does not spin at all, since the CPU
// that it would keep is another of its threads'.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/status.h"

namespace blend {

// Thread-safe. Must not be destroyed while a region runs. Regions do not nest: a task that calls
// parallel_for on the same pool runs it inline.
class ThreadPool {
 public:
  // Refers to what is called, which outlives the region; nothing is allocated.
  class Task {
   public:
    template <typename Fn>
    Task(const Fn& fn)  // NOLINT(google-explicit-constructor): a lambda is passed as it is
        : fn_(&fn), call_([](const void* f, size_t begin, size_t end, uint32_t thread) {
            (*static_cast<const Fn*>(f))(begin, end, thread);
          }) {}
    void operator()(size_t begin, size_t end, uint32_t thread) const {
      call_(fn_, begin, end, thread);
    }

   private:
    const void* fn_;
    void (*call_)(const void*, size_t, size_t, uint32_t);
  };

  // How long a thread waits awake. Waking it takes 5 to 50 us, by the machine.
  static constexpr std::chrono::microseconds kSpin{50};

  // n_threads counts the caller; 0 = CPUs in the affinity mask.
  static Result<std::unique_ptr<ThreadPool>> create(uint32_t n_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  uint32_t n_threads() const { return static_cast<uint32_t>(workers_.size()) + 1; }

  // Calls task(begin, end, thread) over [0, n) in pieces of `grain`, dynamically scheduled (in one
  // piece where there is one thread, or the call is nested: do not size scratch by the grain);
  // `thread` < n_threads() names the executing thread's slot within the region. Tasks must not
  // throw.
  void parallel_for(size_t n, size_t grain, const Task& task);

 private:
  // Of state_: workers inside the region, whether more may join it, and its number above.
  static constexpr uint64_t kInside = 0xffff, kOpen = 1 << 16, kRegion = 1 << 17;

  ThreadPool() = default;
  void worker_main(uint32_t thread);
  bool join(uint64_t& seen);  // false: there is no region after number `seen`
  void leave();
  void wait_for_region(uint64_t seen);
  void run_pieces(uint32_t thread);
  void wake(size_t pieces);
  template <typename Done>
  bool spin_until(Done done) const;

  std::vector<std::thread> workers_;
  bool spins_ = false;
  std::mutex region_;  // one region at a time

  // The current region; written under region_ before state_ opens it, read by those inside.
  const Task* task_ = nullptr;
  size_t n_ = 0;
  size_t grain_ = 1;
  std::atomic<size_t> next_{0};
  std::atomic<uint64_t> state_{0};

  // Sleeping. Who is about to sleep says so before it looks at state_ a last time, and who changes
  // state_ does so before it looks for sleepers: one of the two sees the other.
  std::atomic<bool> stop_{false};
  std::atomic<uint32_t> sleepers_{0};       // workers
  std::atomic<bool> caller_sleeps_{false};  // until the last worker has left
  std::mutex sleep_mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
};

}  // namespace blend
