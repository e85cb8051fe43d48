#include "base/threads/foreground.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace blend {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

// Hangs if broken: for an hour.
TEST(Foreground, NobodyThereNobodyWaitedFor) {
  Foreground f;
  f.stand_back(milliseconds(0), hours(1));
}

TEST(Foreground, StandsBackUntilTheLastHasGone) {
  Foreground f;
  std::atomic<bool> went{false};
  std::thread background;
  {
    const Foreground::Scope one(f);
    {
      const Foreground::Scope two(f);
      background = std::thread([&] {
        f.stand_back(milliseconds(0), hours(1));
        went = true;
      });
    }
    std::this_thread::sleep_for(milliseconds(20));
    EXPECT_FALSE(went);
  }
  background.join();
  EXPECT_TRUE(went);
}

// Hangs if hurrying does not end the hour.
TEST(Foreground, StandsBackForAWhileAfterTheLast) {
  Foreground f;
  { const Foreground::Scope gone(f); }
  std::atomic<bool> went{false};
  std::thread background([&] {
    f.stand_back(hours(1), hours(1));
    went = true;
  });
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_FALSE(went);
  const Foreground::Hurry hurry(f);
  background.join();
}

// Hangs if broken: the one who waits never goes.
TEST(Foreground, WhereSomebodyAlwaysWaitsItGoesOn) {
  Foreground f;
  const Foreground::Scope always(f);
  f.stand_back(milliseconds(0), milliseconds(5));
}

// Hangs if broken: for an hour, or (the last line) while there is someone.
TEST(Foreground, HurryEndsIt) {
  Foreground f;
  const Foreground::Scope always(f);
  std::thread background([&] { f.stand_back(hours(1), hours(1)); });
  {
    const Foreground::Hurry hurry(f);
    background.join();
    f.stand_back(hours(1), hours(1));
  }
  f.stand_back(hours(1), milliseconds(1));
}

}  // namespace
}  // namespace blend
