// Regions of several callers on one pool: caps, turns, and pinned threads.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/threads/thread_cap.h"
#include "base/threads/thread_pool.h"

namespace blend {
namespace {

std::unique_ptr<ThreadPool> make_pool(const PoolOptions& options) {
  auto pool = ThreadPool::create(options);
  EXPECT_TRUE(pool.is_ok()) << pool.status().message();
  return std::move(pool.value());
}

// Comes, and waits until `n` have come in all; false: they do not come at the same time.
bool meet(std::atomic<int>& come, int n) {
  ++come;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (come < n) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

// Each call on a thread of its own.
void at_once(const std::vector<std::function<void()>>& calls) {
  std::vector<std::thread> callers;
  callers.reserve(calls.size());
  for (const auto& call : calls) callers.emplace_back(call);
  for (std::thread& t : callers) t.join();
}

TEST(ThreadCap, TheInnermostHoldsOnItsThread) {
  EXPECT_EQ(ThreadCap::current(), 0u);
  EXPECT_EQ(ThreadCap::of(8), 8u);
  const ThreadCap outer(3);
  EXPECT_EQ(ThreadCap::of(8), 3u);
  EXPECT_EQ(ThreadCap::of(2), 2u);
  {
    const ThreadCap none(0);
    EXPECT_EQ(ThreadCap::of(8), 8u);
  }
  EXPECT_EQ(ThreadCap::current(), 3u);
  std::thread([] { EXPECT_EQ(ThreadCap::current(), 0u); }).join();
}

// Never more than the cap, and as many as that: the first pieces wait for each other.
TEST(ThreadCap, ARegionHasItsCap) {
  const auto pool = make_pool(4);
  for (const uint32_t cap : {1u, 2u, 3u, 4u, 100u, 0u}) {
    const int width = cap == 0 ? 4 : static_cast<int>(std::min(cap, 4u));
    const ThreadCap scope(cap);
    for (int round = 0; round < 20; ++round) {
      std::atomic<int> come{0}, inside{0}, most{0};
      std::atomic<bool> alone{false}, out_of_range{false};
      pool->parallel_for(64, 1, [&](size_t begin, size_t, uint32_t thread) {
        const int now = ++inside;
        for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
        }
        if (static_cast<int>(thread) >= width) out_of_range = true;
        if (static_cast<int>(begin) < width && !meet(come, width)) alone = true;
        --inside;
      });
      EXPECT_FALSE(alone) << "cap " << cap;
      EXPECT_FALSE(out_of_range) << "cap " << cap;
      EXPECT_EQ(most, width) << "cap " << cap;
    }
  }
}

// So what is computed does not depend on it.
TEST(ThreadCap, ThePiecesAreTheSame) {
  const auto pool = make_pool(3);
  const auto pieces = [&](uint32_t cap) {
    const ThreadCap scope(cap);
    std::mutex mutex;
    std::vector<std::pair<size_t, size_t>> out;
    pool->parallel_for(10, 3, [&](size_t begin, size_t end, uint32_t) {
      const std::lock_guard lock(mutex);
      out.emplace_back(begin, end);
    });
    std::sort(out.begin(), out.end());
    return out;
  };
  const std::vector<std::pair<size_t, size_t>> want{{0, 3}, {3, 6}, {6, 9}, {9, 10}};
  for (const uint32_t cap : {0u, 1u, 2u, 3u}) EXPECT_EQ(pieces(cap), want) << "cap " << cap;
}

// All four pieces of two regions wait for each other: one region at a time would never end. Now and
// then the workers are asleep.
TEST(ThreadCap, RegionsRunSideBySide) {
  const auto pool = make_pool(4);
  for (int round = 0; round < 30; ++round) {
    std::atomic<int> come{0};
    std::atomic<bool> apart{false};
    const auto half = [&] {
      const ThreadCap cap(2);
      pool->parallel_for(2, 1, [&](size_t, size_t, uint32_t) {
        if (!meet(come, 4)) apart = true;
      });
    };
    at_once({half, half});
    ASSERT_FALSE(apart) << "round " << round;
    if (round % 10 == 0) std::this_thread::sleep_for(20 * ThreadPool::kSpin);
  }
}

// A region takes no more threads than it has pieces, so these need no cap.
TEST(ThreadCap, RegionsOfOnePieceRunSideBySide) {
  const auto pool = make_pool(3);
  std::atomic<int> come{0};
  std::atomic<bool> apart{false};
  const auto one = [&] {
    pool->parallel_for(5, 5, [&](size_t, size_t, uint32_t) {
      if (!meet(come, 3)) apart = true;
    });
  };
  at_once({one, one, one});
  EXPECT_FALSE(apart);
}

// A worker sleeps, a region opens beside one that has not ended, and gets it.
TEST(ThreadCap, ARegionBesideALongOneGetsItsThreads) {
  const auto pool = make_pool(4);
  std::atomic<bool> over{false};
  std::atomic<int> begun{0};
  std::thread longest([&] {
    const ThreadCap cap(2);
    pool->parallel_for(2, 1, [&](size_t, size_t, uint32_t) {
      ++begun;
      while (!over) std::this_thread::yield();
    });
  });
  while (begun < 2) std::this_thread::yield();
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(10 * ThreadPool::kSpin);
    const ThreadCap cap(2);
    std::atomic<int> come{0};
    bool met[2] = {false, false};
    pool->parallel_for(2, 1, [&](size_t begin, size_t, uint32_t) { met[begin] = meet(come, 2); });
    EXPECT_TRUE(met[0] && met[1]);
  }
  over = true;
  longest.join();
}

// Three callers of one thread each, of whom there is always one inside: the pool is never free as a
// whole, and what needs it whole still gets it.
TEST(ThreadCap, SmallRegionsDoNotStarveALargeOne) {
  const auto pool = make_pool(4);
  std::atomic<bool> served{false}, gave_up{false};
  std::atomic<uint64_t> begun{0};
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  const auto small = [&] {
    const ThreadCap cap(1);
    while (!served && !gave_up) {
      pool->parallel_for(1, 1, [&](size_t, size_t, uint32_t) {
        const uint64_t mine = ++begun;
        const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(30);
        // Until another one is inside, or nobody is let in any more.
        while (begun == mine && std::chrono::steady_clock::now() < end) std::this_thread::yield();
      });
      if (std::chrono::steady_clock::now() > give_up) gave_up = true;
    }
  };
  const auto large = [&] {
    while (begun < 100) std::this_thread::yield();
    for (int round = 0; round < 3; ++round) {
      std::atomic<int> come{0};
      pool->parallel_for(4, 1, [&](size_t, size_t, uint32_t) { EXPECT_TRUE(meet(come, 4)); });
    }
    served = true;
  };
  at_once({small, small, small, large});
  EXPECT_FALSE(gave_up);
}

// More callers than threads, with caps of all kinds, nested regions and sleeps: never more tasks
// than threads, each index once, and slots that nobody shares.
TEST(ThreadCap, ManyCallers) {
  constexpr int kThreads = 4;
  const auto pool = make_pool(kThreads);
  std::atomic<int> running{0}, most{0};
  std::atomic<bool> shared{false}, wrong{false};
  const auto caller = [&](uint32_t cap, int rounds) {
    return [&, cap, rounds] {
      const ThreadCap scope(cap);
      for (int round = 0; round < rounds; ++round) {
        std::atomic<int> slots[kThreads] = {};
        // Not atomic on purpose: the thread sanitizer watches.
        std::vector<int> count(23, 0);
        pool->parallel_for(count.size(), 1 + round % 3, [&](size_t begin, size_t end, uint32_t t) {
          const int now = ++running;
          for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
          }
          if (slots[t].fetch_add(1) != 0) shared = true;
          pool->parallel_for(end - begin, 1, [&](size_t b, size_t e, uint32_t) {
            for (size_t i = b; i < e; ++i) ++count[begin + i];
          });
          if (begin == 0) std::this_thread::yield();
          slots[t].fetch_sub(1);
          --running;
        });
        if (std::count(count.begin(), count.end(), 1) != 23) wrong = true;
        if (round % 64 == 0) std::this_thread::sleep_for(3 * ThreadPool::kSpin);
      }
    };
  };
  at_once({caller(0, 300), caller(1, 300), caller(2, 300), caller(2, 300), caller(3, 300),
           caller(0, 300), caller(1, 300)});
  EXPECT_FALSE(shared);
  EXPECT_FALSE(wrong);
  EXPECT_LE(most, kThreads);
  EXPECT_GT(most, 1);
}

// Hangs if broken, or a sanitizer sees it: a worker that is still on its way out of a region.
TEST(ThreadCap, APoolMayEndRightAfterItsRegions) {
  for (int round = 0; round < 50; ++round) {
    const auto pool = make_pool(4);
    const auto half = [&] {
      const ThreadCap cap(2);
      for (int i = 0; i < 5; ++i) pool->parallel_for(8, 1, [](size_t, size_t, uint32_t) {});
    };
    at_once({half, half, half});
  }
}

std::vector<int> cpus_of_this_thread() {
  cpu_set_t set;
  EXPECT_EQ(pthread_getaffinity_np(pthread_self(), sizeof set, &set), 0);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

void keep_to(const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(cpu, &set);
  ASSERT_EQ(pthread_setaffinity_np(pthread_self(), sizeof set, &set), 0);
}

// [threads]: the CPUs that each may run on, the caller's first. All threads are at it at once, so
// each slot is a thread's own.
std::vector<std::vector<int>> cpus_of(ThreadPool& pool) {
  const int n = static_cast<int>(pool.n_threads());
  std::vector<std::vector<int>> out(pool.n_threads());
  std::atomic<int> come{0};
  pool.parallel_for(pool.n_threads(), 1, [&](size_t, size_t, uint32_t thread) {
    out[thread] = cpus_of_this_thread();
    EXPECT_TRUE(meet(come, n));
  });
  return out;
}

TEST(PinnedThreads, EachWorkerHasACpuOfItsOwnAndTheCallerTheFirst) {
  const std::vector<int> cpus = cpus_of_this_thread();
  const auto pool = make_pool({0, true});
  ASSERT_EQ(pool->n_threads(), std::min<size_t>(cpus.size(), ThreadPool::kMostThreads));
  const std::vector<std::vector<int>> found = cpus_of(*pool);
  EXPECT_EQ(found[0], cpus) << "the calling thread is not touched";
  for (size_t t = 1; t < found.size(); ++t) EXPECT_EQ(found[t], std::vector<int>{cpus[t]});
}

TEST(PinnedThreads, TheCpusAreThoseOfTheThreadThatMakesThePool) {
  const std::vector<int> cpus = cpus_of_this_thread();
  if (cpus.size() < 2) GTEST_SKIP() << "one CPU";
  // All but the first.
  std::thread([&] {
    keep_to({cpus.begin() + 1, cpus.end()});
    const auto pool = make_pool({0, true});
    ASSERT_EQ(pool->n_threads(), cpus.size() - 1);
    const std::vector<std::vector<int>> found = cpus_of(*pool);
    for (size_t t = 1; t < found.size(); ++t) EXPECT_EQ(found[t], std::vector<int>{cpus[t + 1]});
  }).join();
}

TEST(PinnedThreads, UnlessAskedForNobodyIsPinned) {
  const auto pool = make_pool(3);
  for (const std::vector<int>& cpus : cpus_of(*pool)) EXPECT_EQ(cpus, cpus_of_this_thread());
}

TEST(PinnedThreads, MoreThreadsThanCpusAreRefused) {
  const std::vector<int> cpus = cpus_of_this_thread();
  const auto n = static_cast<uint32_t>(cpus.size()) + 1;
  const auto pool = ThreadPool::create({n, true});
  ASSERT_FALSE(pool.is_ok());
  EXPECT_EQ(pool.status().code(), BLEND_E_INVALID_ARGUMENT);
  EXPECT_NE(pool.status().message().find(std::to_string(n)), std::string::npos);
  EXPECT_TRUE(ThreadPool::create(n).is_ok()) << "unpinned they are welcome";
}

TEST(ThreadPool, TooManyThreadsAreRefused) {
  const auto pool = ThreadPool::create(ThreadPool::kMostThreads + 1);
  ASSERT_FALSE(pool.is_ok());
  EXPECT_EQ(pool.status().code(), BLEND_E_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace blend
