#include "base/threads/guarded.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

namespace blend {
namespace {

// What a class with the annotations looks like.
class Box {
 public:
  void put(int value) {
    {
      const MutexLock lock(mutex_);
      value_ = value;
    }
    changed_.notify_all();
  }
  int wait() {
    MutexLock lock(mutex_);
    changed_.wait(lock, [&]() BLEND_REQUIRES(mutex_) { return value_ != 0; });
    return value_;
  }
  bool comes_within(std::chrono::milliseconds time) {
    MutexLock lock(mutex_);
    return changed_.wait_for(lock, time, [&]() BLEND_REQUIRES(mutex_) { return value_ != 0; });
  }
  // Whether another thread can lock the mutex while this one lets go of it.
  bool lets_go(bool with_exception) {
    const MutexLock lock(mutex_);
    bool free_meanwhile = false;
    try {
      let_go(with_exception, &free_meanwhile);
    } catch (const std::runtime_error&) {
    }
    return free_meanwhile;
  }
  bool is_free() {
    bool locked = false;
    std::thread([&] {
      locked = mutex_.try_lock();
      if (locked) mutex_.unlock();
    }).join();
    return locked;
  }
  bool is_free_inside() {
    const MutexLock lock(mutex_);
    return is_free();
  }

 private:
  void let_go(bool with_exception, bool* free_meanwhile) BLEND_REQUIRES(mutex_) {
    {
      const MutexUnlock unlock(mutex_);
      *free_meanwhile = is_free();
      if (with_exception) throw std::runtime_error("work without the lock failed");
    }
    value_ = 1;
  }

  Mutex mutex_;
  CondVar changed_;
  int value_ BLEND_GUARDED_BY(mutex_) = 0;
};

TEST(Guarded, AWaitEndsWithWhatItWaitsFor) {
  Box box;
  EXPECT_FALSE(box.comes_within(std::chrono::milliseconds(1)));
  std::thread other([&] { box.put(7); });
  EXPECT_EQ(box.wait(), 7);
  EXPECT_TRUE(box.comes_within(std::chrono::milliseconds(1)));
  other.join();
}

TEST(Guarded, AnUnlockIsTakenBackHoweverItsScopeEnds) {
  Box box;
  EXPECT_FALSE(box.is_free_inside());
  EXPECT_TRUE(box.lets_go(false));
  EXPECT_TRUE(box.is_free());
  EXPECT_TRUE(box.lets_go(true)) << "and an exception leaves the lock as it was";
  EXPECT_TRUE(box.is_free());
}

}  // namespace
}  // namespace blend
