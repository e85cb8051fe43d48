#include "base/threads/leave_cpu.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

#include "base/threads/thread_pool.h"

namespace blend {
namespace {

cpu_set_t allowed() {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(0, sched_getaffinity(0, sizeof set, &set));
  return set;
}

// This thread is there for now, and may be elsewhere.
void go_to(int cpu) {
  const cpu_set_t before = allowed();
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  ASSERT_EQ(0, sched_setaffinity(0, sizeof one, &one));
  ASSERT_EQ(0, sched_setaffinity(0, sizeof before, &before));
}

int nth_cpu(const cpu_set_t& set, int n) {
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set) && n-- == 0) return cpu;
  }
  return -1;
}

TEST(LeaveCpu, GoesElsewhereAndKeepsTheMask) {
  const cpu_set_t mask = allowed();
  if (CPU_COUNT(&mask) < 2) GTEST_SKIP() << "one CPU";
  cpu_set_t none;
  CPU_ZERO(&none);
  for (const cpu_set_t& taken : {none, mask}) {  // where all are taken, some other one
    int left = 0;
    for (int i = 0; i < 50; ++i) {
      const int cpu = nth_cpu(mask, i % 2);
      go_to(cpu);
      leave_cpu(cpu, taken);
      if (this_cpu() != cpu) ++left;
      const cpu_set_t behind = allowed();
      ASSERT_TRUE(CPU_EQUAL(&mask, &behind));
    }
    EXPECT_GE(left, 45);  // in between the system may move it too
  }
}

TEST(LeaveCpu, TakesOneThatIsFree) {
  const cpu_set_t mask = allowed();
  if (CPU_COUNT(&mask) < 3) GTEST_SKIP() << "fewer than three CPUs";
  const int here = nth_cpu(mask, 0), free = nth_cpu(mask, 2);
  cpu_set_t taken = mask;
  CPU_CLR(free, &taken);
  int found = 0;
  for (int i = 0; i < 50; ++i) {
    go_to(here);
    leave_cpu(here, taken);
    if (this_cpu() == free) ++found;
  }
  EXPECT_GE(found, 45);
}

TEST(LeaveCpu, StaysWhereThereIsNoOther) {
  std::thread([] {
    const int cpu = nth_cpu(allowed(), 0);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    ASSERT_EQ(0, sched_setaffinity(0, sizeof one, &one));
    leave_cpu(cpu, {});
    EXPECT_EQ(cpu, this_cpu());
    const cpu_set_t behind = allowed();
    EXPECT_TRUE(CPU_EQUAL(&one, &behind));
    leave_cpu(-1, {});
    leave_cpu(CPU_SETSIZE, {});
  }).join();
}

// A worker that is brought to its caller's CPU is elsewhere in the next region.
TEST(LeaveCpu, AWorkerLeavesItsCallersCpu) {
  const cpu_set_t mask = allowed();
  if (CPU_COUNT(&mask) < 2) GTEST_SKIP() << "one CPU";
  const auto pool = std::move(ThreadPool::create(2).value());
  std::thread([&] {
    const int cpu = nth_cpu(mask, 1);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    ASSERT_EQ(0, sched_setaffinity(0, sizeof one, &one));
    // A region that has a piece for each of both: the first of them waits for the other.
    const auto both = [&](const auto& of_worker) {
      std::atomic<int> there{0};
      pool->parallel_for(2, 1, [&](size_t, size_t, uint32_t thread) {
        if (thread == 1) of_worker();
        ++there;
        while (there.load() < 2) std::this_thread::yield();
      });
    };
    int left = 0;
    constexpr int kRounds = 30;
    for (int i = 0; i < kRounds; ++i) {
      both([&] { go_to(cpu); });
      std::this_thread::sleep_for(2 * ThreadPool::kSettles);
      both([&] {
        if (this_cpu() != cpu) ++left;
      });
    }
    EXPECT_GE(left, kRounds * 2 / 3);
  }).join();
}

}  // namespace
}  // namespace blend
