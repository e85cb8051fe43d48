// In a forked child: tells of each lock of the parent's that a call takes, and of each condition
// variable that it destroys while threads of the parent wait there. Either hangs, but only if
// another thread was there at the moment of the fork. That is rare, so a test that waits for the
// hang sees nothing.
#include "capi/lock_watch.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)

// A sanitizer has functions of the same names.
extern "C" int lock_watch_begin(void) { return 0; }
extern "C" int lock_watch_end(void) { return 0; }

#else

namespace {

bool watching = false;  // in a child, which has one thread
int n_seen = 0;

void tell(const char* what) {
  watching = false;
  if (++n_seen <= 20) {
    void* frames[32];
    const int n = backtrace(frames, 32);
    std::fprintf(stderr, "\nin a forked child: %s\n", what);
    backtrace_symbols_fd(frames, n, STDERR_FILENO);
  }
  watching = true;
}

}  // namespace

extern "C" {

int lock_watch_begin(void) {
  void* frame = nullptr;
  (void)backtrace(&frame, 1);  // its first call loads a library
  watching = true;
  return 1;
}

int lock_watch_end(void) {
  watching = false;
  return n_seen;
}

// Visible: every library of the process finds these before the C library's.

__attribute__((visibility("default"))) int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  static const auto next =
      reinterpret_cast<int (*)(pthread_mutex_t*)>(dlsym(RTLD_NEXT, "pthread_mutex_lock"));
  if (watching) {
    // A mutex on this stack is the call's own.
    const auto here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
    const auto at = reinterpret_cast<uintptr_t>(mutex);
    if (at < here || at - here > uintptr_t{1} << 20) tell("a lock is taken");
  }
  return next(mutex);
}

__attribute__((visibility("default"))) int pthread_cond_destroy(pthread_cond_t* cond) noexcept {
  static const auto next =
      reinterpret_cast<int (*)(pthread_cond_t*)>(dlsym(RTLD_NEXT, "pthread_cond_destroy"));
  if (watching && cond->__data.__wrefs >> 3 != 0) {
    tell("a condition variable is destroyed, for which threads wait");
    return 0;  // the C library's would wait for them
  }
  return next(cond);
}

}  // extern "C"
#endif
