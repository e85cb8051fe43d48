// ThreadPool: the compute threads of one context.
//
// A parallel region runs on the calling thread and on workers, of which there are n_threads-1. It
// takes as many threads as it has pieces, at most all or what the caller's ThreadCap says, before
// it begins (fair_scheduler.h): regions of several callers run side by side as long as these add up
// to at most n_threads, others wait. So a context never runs more than n_threads compute threads,
// and callers with caps do not disturb each other.
//
// A region never waits for a thread that has not begun: workers join it while there are pieces and
// room, and its end waits only for those that joined. So a worker that sleeps, or whose CPU another
// process has, costs a small region nothing. Workers that find no region spin for kSpin, which
// bridges the gaps between the operations of a layer and between tokens, and then sleep: an idle
// pool costs nothing. A pool of more threads than the process has CPUs does not spin at all, since
// a spinning thread would keep a CPU from another of its threads. A caller that waits for its turn
// sleeps: it is not one of the n_threads meanwhile.
//
// A worker that meets its caller on one CPU goes to another (leave_cpu.h): threads that run for
// microseconds between waits look idle to the system, which leaves two of them on one
// CPU for seconds, while other CPUs have little to do.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "base/status.h"
#include "base/threads/fair_scheduler.h"
#include "base/threads/guarded.h"

namespace blend {

struct PoolOptions {
  // Implicit: tests and benchmarks ask for a number.
  PoolOptions(uint32_t n = 0, bool pinned = false)  // NOLINT(google-explicit-constructor)
      : n_threads(n), pin(pinned) {}

  uint32_t n_threads;  // the caller included; 0: CPUs in the affinity mask, at most kMostThreads
  // Each worker runs on one CPU of the affinity mask of the thread that makes the pool, in
  // ascending order. The first is left to the callers, whose own masks are not touched.
  bool pin;
};

// Thread-safe. Must not be destroyed while a region runs. Regions do not nest: a task that calls
// parallel_for on the same pool runs it inline.
class ThreadPool {
 public:
  // Refers to a callable that outlives the region; nothing is allocated.
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

  // Least time between two moves of a worker to another CPU.
  static constexpr std::chrono::milliseconds kSettles{1};

  // How long a thread waits awake. Waking it takes 5 to 50 us, by the machine.
  static constexpr std::chrono::microseconds kSpin{50};

  static constexpr uint32_t kMostThreads = FairScheduler::kMostThreads;

  // While it lives, the regions of the thread that made it wait only for those that already run:
  // threads are kept for them (FairScheduler::reserve()), as many as its ThreadCap allows. For a
  // short series of small regions; one at a time on a thread.
  class Run {
   public:
    explicit Run(ThreadPool& pool);
    ~Run() { end(); }
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;
    // Whether others wait for a turn.
    bool end();

   private:
    ThreadPool* pool_;
    const uint32_t n_;
  };

  // INVALID_ARGUMENT: more threads than kMostThreads, or to pin than there are CPUs; IO: the system
  // will not pin a thread.
  static Result<std::unique_ptr<ThreadPool>> create(const PoolOptions& options);
  virtual ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  uint32_t n_threads() const { return static_cast<uint32_t>(workers_.size()) + 1; }

  // Calls task(begin, end, thread) over [0, n) in pieces of `grain`, dynamically scheduled (in one
  // piece where the pool has one thread, or the call is nested: do not size scratch by the grain).
  // The pieces are the same under any ThreadCap. `thread` < n_threads() and the cap names the
  // executing thread's slot within the region. Tasks must not throw.
  // Virtual for a backend in a library of its own (libblend_cuda.so): it calls the code of the
  // library that made the pool, whose thread-locals hold this thread's cap and current region.
  virtual void parallel_for(size_t n, size_t grain, const Task& task);

 private:
  // Fields of Region::state: workers inside, how many more may join, whether they may, and the
  // region's number.
  static constexpr uint64_t kInside = 0xfff, kSeat = 1 << 12, kSeats = 0xfff;
  static constexpr uint64_t kOpen = 1 << 24, kNumber = 1 << 25;

  // Workers look for regions here. The plain members are written by the caller that has taken it,
  // before state opens it, and read by those inside. Workers poll the first cache line, so each
  // write to it costs the caller a transfer: opening and closing are two.
  struct alignas(64) Region {
    std::atomic<uint64_t> state{0};
    std::atomic<size_t> next{0};
    const Task* task = nullptr;
    size_t n = 0;
    size_t grain = 1;
    uint32_t width = 1;                      // threads it may have, the caller included
    int cpu = -1;                            // the caller's
    std::atomic<bool> caller_sleeps{false};  // until the last worker has left
    // Used by callers only.
    alignas(64) std::atomic<bool> taken{false};
    CondVar done;

    void run_pieces(uint32_t thread);
    // joinable: a worker may join. join: it has joined, with the seat that is the difference to
    // width; false: it may not, or was in this one, number `seen`, before.
    static bool joinable(uint64_t state, uint64_t seen);
    bool join(uint64_t& seen, uint32_t& seats_left);
  };

  explicit ThreadPool(uint32_t n_threads);
  Status start_workers(uint32_t n_threads, bool pin);
  // seen: [n_regions_], for each the number of the last region that this worker was in.
  void worker_main(uint32_t worker, std::vector<uint64_t>& seen);
  void run(size_t n, size_t grain, const Task& task, uint32_t width, uint32_t others);
  Region& take_region();
  void leave(Region& region);
  void wait_for_region(const std::vector<uint64_t>& seen);
  // First act of a worker in a region whose caller is on `caller_cpu`. last: when it last made way
  // for a caller.
  void take_place(uint32_t worker, int caller_cpu, std::chrono::steady_clock::time_point& last);
  void wake(uint32_t width, uint32_t others);
  template <typename Done>
  bool spin_until(Done done) const;

  std::vector<std::thread> workers_;
  const std::unique_ptr<std::atomic<int>[]> cpus_;  // [n_threads]: where each worker was last
  bool spins_ = false;

  // A region of one thread needs none of these, so half as many as threads are enough. The first
  // free one is taken; no worker looks beyond regions_in_use_, which only grows.
  const size_t n_regions_;
  const std::unique_ptr<Region[]> regions_;
  std::atomic<size_t> regions_in_use_{0};

  // Sleeping. A worker announces that it will sleep before it looks at the regions a last time; a
  // caller opens or leaves one before it looks for sleepers: one of the two sees the other.
  std::atomic<bool> stop_{false};
  std::atomic<uint32_t> sleepers_{0};  // workers
  Mutex
      sleep_mutex_;  // guards no member: who notifies holds it, so that nobody falls asleep past it
  CondVar wake_;

  alignas(64) FairScheduler scheduler_;  // not in a cache line that workers poll
};

}  // namespace blend
