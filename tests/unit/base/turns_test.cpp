// Threads that a caller keeps for a run of small regions. What turns promise otherwise is seen
// through the pool: thread_caps_test.cpp.
#include "base/turns.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace blend {
namespace {

TEST(Turns, KeptThreadsAreTheirsWhoKeptThem) {
  Turns turns(4);
  turns.reserve(3);
  turns.enter(1);        // beside the three
  turns.enter(3, true);  // and nobody is waited for
  turns.leave(1);
  turns.leave(3, true);
  EXPECT_FALSE(turns.release(3));
  turns.enter(4);  // all are free again
  turns.leave(4);
}

// Hangs if broken: who waits would not be woken.
TEST(Turns, OthersComeInWhenTheRunHasEnded) {
  for (const uint32_t width : {1u, 2u}) {
    Turns turns(2);
    turns.reserve(2);
    std::atomic<bool> in{false};
    std::thread other([&] {
      turns.enter(width);
      in = true;
      turns.leave(width);
    });
    for (int i = 0; i < 2000; ++i) {
      turns.enter(1 + static_cast<uint32_t>(i % 2), true);
      turns.leave(1 + static_cast<uint32_t>(i % 2), true);
      EXPECT_FALSE(in);  // also between the run's regions
      if (i % 100 == 0) std::this_thread::yield();
    }
    // As soon as the other is in line the end of a run says that it waits.
    while (!turns.release(2) && !in) {
      turns.reserve(2);
      std::this_thread::yield();
    }
    other.join();
    EXPECT_TRUE(in);
  }
}

// A region that runs is waited for, once, ahead of those that waited before.
TEST(Turns, TheRunGoesBeforeThoseInLine) {
  Turns turns(1);
  turns.enter(1);
  std::atomic<int> order{0};
  int second = 0, run = 0;
  std::thread waits([&] {
    turns.enter(1);
    second = ++order;
    turns.leave(1);
  });
  std::this_thread::sleep_for(2 * Turns::kPatience);  // it must not be passed any more
  turns.reserve(1);
  std::thread keeps([&] {
    turns.enter(1, true);
    run = ++order;
    turns.leave(1, true);
    turns.release(1);
  });
  turns.leave(1);
  keeps.join();
  waits.join();
  EXPECT_EQ(run, 1);
  EXPECT_EQ(second, 2);
}

}  // namespace
}  // namespace blend
