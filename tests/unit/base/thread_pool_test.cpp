#include "base/threads/thread_pool.h"

#include <gtest/gtest.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

namespace blend {
namespace {

std::unique_ptr<ThreadPool> make_pool(uint32_t n_threads) {
  auto pool = ThreadPool::create(n_threads);
  EXPECT_TRUE(pool.is_ok());
  return std::move(pool.value());
}

class ThreadPoolTest : public ::testing::TestWithParam<uint32_t> {};

TEST_P(ThreadPoolTest, RunsEveryIndexExactlyOnce) {
  const auto pool = make_pool(GetParam());
  EXPECT_EQ(pool->n_threads(), GetParam());
  for (const size_t n : {size_t{0}, size_t{1}, size_t{2}, size_t{7}, size_t{8}, size_t{1000}}) {
    for (const size_t grain : {size_t{0}, size_t{1}, size_t{3}, size_t{64}, size_t{5000}}) {
      std::vector<std::atomic<int>> count(n);
      std::atomic<bool> in_range{true};
      pool->parallel_for(n, grain, [&](size_t begin, size_t end, uint32_t thread) {
        if (begin >= end || end > n || thread >= GetParam()) in_range = false;
        for (size_t i = begin; i < end; ++i) ++count[i];
      });
      EXPECT_TRUE(in_range);
      for (size_t i = 0; i < n; ++i) ASSERT_EQ(count[i], 1) << n << " " << grain << " " << i;
    }
  }
}

// No two tasks share a slot at the same time, so a task may use per-slot scratch memory.
TEST_P(ThreadPoolTest, SlotsAreExclusive) {
  const auto pool = make_pool(GetParam());
  std::vector<std::atomic<int>> inside(GetParam());
  std::atomic<bool> shared{false};
  for (int round = 0; round < 200; ++round) {
    pool->parallel_for(64, 1, [&](size_t, size_t, uint32_t thread) {
      if (inside[thread].fetch_add(1) != 0) shared = true;
      std::this_thread::yield();
      inside[thread].fetch_sub(1);
    });
  }
  EXPECT_FALSE(shared);
}

TEST_P(ThreadPoolTest, NestedRegionsRunInline) {
  const auto pool = make_pool(GetParam());
  std::atomic<int> total{0};
  std::atomic<int> elsewhere{0};
  pool->parallel_for(16, 1, [&](size_t first, size_t last, uint32_t) {
    const auto outer = std::this_thread::get_id();
    pool->parallel_for(10, 1, [&](size_t begin, size_t end, uint32_t) {
      if (std::this_thread::get_id() != outer) ++elsewhere;
      total += static_cast<int>((end - begin) * (last - first));
    });
  });
  EXPECT_EQ(total, 160);
  EXPECT_EQ(elsewhere, 0);
}

// Two contexts in one process: a task of one may wait for a region of the other. Hangs if broken.
TEST_P(ThreadPoolTest, ATaskMayUseAnotherPoolAndThenItsOwn) {
  const auto pool = make_pool(GetParam());
  const auto other = make_pool(2);
  std::atomic<size_t> total{0};
  pool->parallel_for(4, 1, [&](size_t first, size_t last, uint32_t) {
    other->parallel_for(10, 1, [&](size_t begin, size_t end, uint32_t) { total += end - begin; });
    pool->parallel_for(last - first, 1,
                       [&](size_t begin, size_t end, uint32_t) { total += 100 * (end - begin); });
  });
  EXPECT_GE(total, 410u);
}

TEST_P(ThreadPoolTest, SeveralCallersAtOnce) {
  const auto pool = make_pool(GetParam());
  std::atomic<int> running{0};
  std::atomic<int> most{0};
  std::vector<std::atomic<int64_t>> sums(4);
  std::vector<std::thread> callers;
  for (size_t c = 0; c < sums.size(); ++c) {
    callers.emplace_back([&, c] {
      for (int round = 0; round < 100; ++round) {
        pool->parallel_for(50, 3, [&](size_t begin, size_t end, uint32_t) {
          const int now = ++running;
          for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
          }
          for (size_t i = begin; i < end; ++i) sums[c] += static_cast<int64_t>(i);
          --running;
        });
      }
    });
  }
  for (std::thread& t : callers) t.join();
  for (const auto& sum : sums) EXPECT_EQ(sum, 100 * 49 * 50 / 2);
  EXPECT_LE(most, static_cast<int>(GetParam())) << "a pool never runs more tasks than threads";
}

// A task's writes are seen by the caller, and by the tasks of the next region.
TEST_P(ThreadPoolTest, RegionsAreOrdered) {
  const auto pool = make_pool(GetParam());
  std::vector<int> data(257, 0);  // not atomic on purpose: the thread sanitizer watches
  for (int round = 1; round <= 300; ++round) {
    pool->parallel_for(data.size(), 1, [&](size_t begin, size_t end, uint32_t) {
      for (size_t i = begin; i < end; ++i) data[i] += data[i] == round - 1 ? 1 : 1000000;
    });
    ASSERT_EQ(data[0], round);
    ASSERT_EQ(data[256], round);
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, ::testing::Values(1, 2, 8));

// Long enough between regions for workers to sleep, and more pieces than threads or fewer. Hangs if
// broken: a piece waits for a second thread.
TEST(ThreadPool, WorkersThatSleepAreWoken) {
  const auto pool = make_pool(3);
  for (const size_t n : {size_t{2}, size_t{3}, size_t{9}}) {
    for (int round = 0; round < 5; ++round) {
      std::this_thread::sleep_for(20 * ThreadPool::kSpin);
      // Every piece waits until there are two threads at it.
      std::atomic<int> arrived{0};
      pool->parallel_for(n, 1, [&](size_t begin, size_t, uint32_t) {
        if (begin >= 2) return;
        ++arrived;
        while (arrived < 2) std::this_thread::yield();
      });
      EXPECT_EQ(arrived, 2);
    }
  }
}

// The other way round: a piece that a worker began is waited for, however long it takes.
TEST(ThreadPool, ARegionEndsWithItsLastPiece) {
  const auto pool = make_pool(2);
  for (int round = 0; round < 3; ++round) {
    std::atomic<int> begun{0}, ended{0};
    pool->parallel_for(2, 1, [&](size_t, size_t, uint32_t thread) {
      ++begun;
      while (begun < 2) std::this_thread::yield();
      // Longer than the caller spins, so that it sleeps and is woken.
      if (thread != 0) std::this_thread::sleep_for(100 * ThreadPool::kSpin);
      ++ended;
    });
    EXPECT_EQ(ended, 2);
  }
}

// A region does not wait for workers that have not begun; they must not enter it afterwards.
TEST(ThreadPool, NoWorkerEntersARegionThatEnded) {
  const auto pool = make_pool(8);
  std::atomic<int> inside{0}, late{0};
  for (int round = 0; round < 2000; ++round) {
    std::atomic<bool> over{false};
    pool->parallel_for(2, 1, [&](size_t, size_t, uint32_t) {
      ++inside;
      if (over) ++late;
      --inside;
    });
    over = true;
    ASSERT_EQ(inside, 0);
  }
  EXPECT_EQ(late, 0);
}

// An idle pool sleeps: what its threads used in half a second is far from what spinning uses.
TEST(ThreadPool, IdleThreadsUseNoCpu) {
  const auto pool = make_pool(2);
  pool->parallel_for(100, 1, [](size_t, size_t, uint32_t) {});
  std::this_thread::sleep_for(20 * ThreadPool::kSpin);
  const auto cpu = [] {
    timespec t{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  };
  const double before = cpu();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_LT(cpu() - before, 0.02);
}

TEST(ThreadPool, ZeroMeansTheCpusAllowed) { EXPECT_GE(make_pool(0)->n_threads(), 1u); }

}  // namespace
}  // namespace blend
