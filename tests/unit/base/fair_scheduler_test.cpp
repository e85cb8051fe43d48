// Threads that a caller reserves for a series of small regions. The scheduler's other promises are
// tested through the pool: thread_caps_test.cpp.
#include "base/threads/fair_scheduler.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace blend {
namespace {

TEST(FairScheduler, KeptThreadsAreTheirsWhoKeptThem) {
  FairScheduler scheduler(4);
  scheduler.reserve(3);
  scheduler.enter(1);        // beside the three
  scheduler.enter(3, true);  // and nobody is waited for
  scheduler.leave(1);
  scheduler.leave(3, true);
  EXPECT_FALSE(scheduler.release(3));
  scheduler.enter(4);  // all are free again
  scheduler.leave(4);
}

// Hangs if broken: who waits would not be woken.
TEST(FairScheduler, OthersComeInWhenTheRunHasEnded) {
  for (const uint32_t width : {1u, 2u}) {
    FairScheduler scheduler(2);
    scheduler.reserve(2);
    std::atomic<bool> in{false};
    std::thread other([&] {
      scheduler.enter(width);
      in = true;
      scheduler.leave(width);
    });
    for (int i = 0; i < 2000; ++i) {
      scheduler.enter(1 + static_cast<uint32_t>(i % 2), true);
      scheduler.leave(1 + static_cast<uint32_t>(i % 2), true);
      EXPECT_FALSE(in);  // also between the run's regions
      if (i % 100 == 0) std::this_thread::yield();
    }
    // As soon as the other is in line the end of a run says that it waits.
    while (!scheduler.release(2) && !in) {
      scheduler.reserve(2);
      std::this_thread::yield();
    }
    other.join();
    EXPECT_TRUE(in);
  }
}

// A region that runs is waited for, once, ahead of those that waited before.
TEST(FairScheduler, TheRunGoesBeforeThoseInLine) {
  FairScheduler scheduler(1);
  scheduler.enter(1);
  std::atomic<int> order{0};
  int second = 0, run = 0;
  std::thread waits([&] {
    scheduler.enter(1);
    second = ++order;
    scheduler.leave(1);
  });
  std::this_thread::sleep_for(2 * FairScheduler::kPatience);  // it must not be passed any more
  scheduler.reserve(1);
  std::thread keeps([&] {
    scheduler.enter(1, true);
    run = ++order;
    scheduler.leave(1, true);
    scheduler.release(1);
  });
  scheduler.leave(1);
  keeps.join();
  waits.join();
  EXPECT_EQ(run, 1);
  EXPECT_EQ(second, 2);
}

}  // namespace
}  // namespace blend
