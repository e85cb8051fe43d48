// FileSizeSignalHeld: writes past the limit on a file's size (`ulimit -f`) fail with EFBIG, which
// callers handle, and send SIGXFSZ as well, which ends a host that has no handler for it.
//
// The library's own threads have the signal blocked (start_thread.h); this is for calls that write
// on the host's thread.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <ctime>
#include <utility>

namespace blend {

// While it lives, a write's SIGXFSZ is held back, and at its end it is dropped. One that the host
// was sent before stays. Made and destroyed on one thread.
class FileSizeSignalHeld {
 public:
  FileSizeSignalHeld() {
    sigset_t pending;
    sigemptyset(&set_);
    sigaddset(&set_, SIGXFSZ);
    sigpending(&pending);
    hosts_ = sigismember(&pending, SIGXFSZ) == 1;
    pthread_sigmask(SIG_BLOCK, &set_, &before_);
  }
  ~FileSizeSignalHeld() {
    if (!active_) return;
    const timespec now{};
    if (!hosts_) {
      while (sigtimedwait(&set_, nullptr, &now) == SIGXFSZ) {
      }
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  FileSizeSignalHeld(FileSizeSignalHeld&& other) noexcept
      : set_(other.set_),
        before_(other.before_),
        hosts_(other.hosts_),
        active_(std::exchange(other.active_, false)) {}
  FileSizeSignalHeld& operator=(FileSizeSignalHeld&&) = delete;

 private:
  sigset_t set_{};
  sigset_t before_{};
  bool hosts_ = false;
  bool active_ = true;
};

}  // namespace blend
