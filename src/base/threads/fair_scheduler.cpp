#include "base/threads/fair_scheduler.h"

namespace blend {

bool FairScheduler::take(uint32_t width, bool reserved, uint64_t barred, uint32_t& others) {
  uint64_t state = state_.load();
  while ((state & barred) == 0 && fits(state, width, reserved)) {
    if (!state_.compare_exchange_weak(state, state - worth(width, reserved))) continue;
    others = static_cast<uint32_t>(state / kOther & kOthers);
    return true;
  }
  return false;
}

uint32_t FairScheduler::enter(uint32_t width, bool reserved) {
  uint32_t others = 0;
  if (!take(width, reserved, reserved ? 0 : kPassNoMore, others)) {
    wait_in_line(width, reserved, others);
  }
  return others;
}

// No wake-up is lost: kWaiting is set, and stays, before state_ is looked at. A leave() that comes
// before the look in the order of state_'s changes is seen by it; one that comes after it sees
// kWaiting, and gets the mutex when the waiter is asleep.
void FairScheduler::wait_in_line(uint32_t width, bool reserved, uint32_t& others) {
  Waiter self{width, reserved, nullptr, {}};
  const auto patient_until = std::chrono::steady_clock::now() + kPatience;
  MutexLock lock(mutex_);
  if (reserved && first_ != nullptr) {  // before all others
    self.next = first_;
    first_ = &self;
  } else {
    (first_ == nullptr ? first_ : last_->next) = &self;
    last_ = &self;
  }
  state_.fetch_or(kWaiting);
  for (;;) {
    if (first_ == &self) {
      if (take(width, reserved, 0, others)) break;
      if (std::chrono::steady_clock::now() < patient_until) {
        self.turn.wait_until(lock, patient_until);
        continue;
      }
      state_.fetch_or(kPassNoMore);
    }
    self.turn.wait(lock);
  }
  first_ = self.next;
  state_.fetch_and(~(kPassNoMore | (first_ == nullptr ? kWaiting : 0)));
  if (first_ != nullptr) {
    first_->turn.notify_one();
  } else {
    last_ = nullptr;
  }
}

void FairScheduler::leave(uint32_t width, bool reserved) {
  if ((state_.fetch_add(worth(width, reserved)) & kWaiting) == 0) return;
  // The mutex is held for notify too: the waiter is on its thread's stack.
  const MutexLock lock(mutex_);
  if (first_ != nullptr && fits(state_.load(), first_->width, first_->reserved)) {
    first_->turn.notify_one();
  }
}

bool FairScheduler::release(uint32_t n) {
  if ((state_.fetch_sub(n * kKept) & kWaiting) == 0) return false;
  const MutexLock lock(mutex_);
  if (first_ == nullptr) return false;
  first_->turn.notify_one();
  return true;
}

}  // namespace blend
