// Which mutex guards which member, in words that clang checks (-Wthread-safety), and the mutex,
// lock and condition variable that it knows. Other compilers see the standard ones and no words.
//
//   mutable Mutex mutex_;
//   uint64_t bytes_ BLEND_GUARDED_BY(mutex_) = 0;
//   void drop_oldest() BLEND_REQUIRES(mutex_);
//
// The test `guarded` runs clang over every file that includes this one.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#if defined(__clang__)
#define BLEND_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define BLEND_THREAD_ANNOTATION(x)
#endif

// On a member: it is read and written only while the mutex is held. On a pointer: what it points
// to.
#define BLEND_GUARDED_BY(mutex) BLEND_THREAD_ANNOTATION(guarded_by(mutex))
#define BLEND_PT_GUARDED_BY(mutex) BLEND_THREAD_ANNOTATION(pt_guarded_by(mutex))
// After the parameters of a function or a lambda: the caller holds the mutex.
#define BLEND_REQUIRES(...) BLEND_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
// The caller must not hold it: the function locks it.
#define BLEND_EXCLUDES(...) BLEND_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
// The function locks or unlocks the mutex for its caller.
#define BLEND_ACQUIRE(...) BLEND_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define BLEND_RELEASE(...) BLEND_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define BLEND_TRY_ACQUIRE(...) BLEND_THREAD_ANNOTATION(try_acquire_capability(__VA_ARGS__))
// The function returns a reference to the mutex.
#define BLEND_RETURN_CAPABILITY(x) BLEND_THREAD_ANNOTATION(lock_returned(x))
// The analysis cannot follow the locks of the function: say why beside it.
#define BLEND_NO_THREAD_SAFETY_ANALYSIS BLEND_THREAD_ANNOTATION(no_thread_safety_analysis)

namespace blend {

// std::mutex with annotations: that of libstdc++ has none.
class BLEND_THREAD_ANNOTATION(capability("mutex")) Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() BLEND_ACQUIRE() { mutex_.lock(); }
  void unlock() BLEND_RELEASE() { mutex_.unlock(); }
  bool try_lock() BLEND_TRY_ACQUIRE(true) { return mutex_.try_lock(); }

 private:
  friend class MutexLock;
  std::mutex mutex_;
};

// Holds a mutex until the end of its scope, as std::unique_lock does; unlock() and lock() in
// between.
class BLEND_THREAD_ANNOTATION(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) BLEND_ACQUIRE(mutex) : lock_(mutex.mutex_) {}
  ~MutexLock() BLEND_RELEASE() {}
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void lock() BLEND_ACQUIRE() { lock_.lock(); }
  void unlock() BLEND_RELEASE() { lock_.unlock(); }

 private:
  friend class CondVar;
  std::unique_lock<std::mutex> lock_;
};

// The other way round: lets go of a mutex that is held until the end of its scope, also when an
// exception ends it. For a function that BLEND_REQUIRES the mutex.
class BLEND_THREAD_ANNOTATION(scoped_lockable) MutexUnlock {
 public:
  explicit MutexUnlock(Mutex& mutex) BLEND_RELEASE(mutex) : mutex_(mutex) { mutex_.unlock(); }
  // Clang takes this for the end of the scope: the mutex is held again.
  ~MutexUnlock() BLEND_RELEASE() { relock(); }
  MutexUnlock(const MutexUnlock&) = delete;
  MutexUnlock& operator=(const MutexUnlock&) = delete;

 private:
  void relock() BLEND_NO_THREAD_SAFETY_ANALYSIS { mutex_.lock(); }
  Mutex& mutex_;
};

// std::condition_variable for a MutexLock. A predicate that reads guarded members names the mutex:
//
//   changed_.wait(lock, [&]() BLEND_REQUIRES(mutex_) { return done_; });
//
// The waits are not analysed: they call the predicate with the lock held, which clang cannot know.
class CondVar {
 public:
  void notify_one() noexcept { changed_.notify_one(); }
  void notify_all() noexcept { changed_.notify_all(); }

  void wait(MutexLock& lock) { changed_.wait(lock.lock_); }
  template <typename Pred>
  void wait(MutexLock& lock, Pred pred) BLEND_NO_THREAD_SAFETY_ANALYSIS {
    while (!pred()) changed_.wait(lock.lock_);
  }
  template <typename Clock, typename Duration>
  std::cv_status wait_until(MutexLock& lock,
                            const std::chrono::time_point<Clock, Duration>& deadline) {
    return changed_.wait_until(lock.lock_, deadline);
  }
  // False: the deadline passed, and the predicate is still false.
  template <typename Clock, typename Duration, typename Pred>
  bool wait_until(MutexLock& lock, const std::chrono::time_point<Clock, Duration>& deadline,
                  Pred pred) BLEND_NO_THREAD_SAFETY_ANALYSIS {
    while (!pred()) {
      if (changed_.wait_until(lock.lock_, deadline) == std::cv_status::timeout) return pred();
    }
    return true;
  }
  template <typename Rep, typename Period>
  std::cv_status wait_for(MutexLock& lock, const std::chrono::duration<Rep, Period>& time) {
    return changed_.wait_for(lock.lock_, time);
  }
  template <typename Rep, typename Period, typename Pred>
  bool wait_for(MutexLock& lock, const std::chrono::duration<Rep, Period>& time, Pred pred) {
    return wait_until(lock, std::chrono::steady_clock::now() + time, std::move(pred));
  }

 private:
  std::condition_variable changed_;
};

}  // namespace blend
