// Starts all our threads with signals blocked, so that a host's handlers run on the host's own
// threads, where it expects them, and signals it waits for in sigwait() arrive there.
//
// Left open are the signals that a thread's own instruction raises: blocked, the kernel would end
// the process instead of running the handler (a JVM's null checks in a callback, a crash reporter).
//
// Uses the standard library alone, because the bindings compile it too.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <exception>
#include <thread>
#include <utility>

namespace blend {

// While it lives, threads started from this one inherit that mask. Afterwards this thread has its
// own mask again. A signal that comes meanwhile waits, or goes to another thread. Not to be held
// over long work.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t set;
    sigfillset(&set);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT}) {
      sigdelset(&set, fault);
    }
    pthread_sigmask(SIG_SETMASK, &set, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

// Throws what std::thread's constructor throws.
template <typename Fn>
std::thread start_thread(Fn&& fn) {
  const SignalsBlocked blocked;
  return std::thread([fn = std::forward<Fn>(fn)]() mutable {
    // Allocates a thread's exception state now: if memory ran out at the first exception, glibc
    // would end the process.
    [[maybe_unused]] volatile int taken = std::uncaught_exceptions();
    fn();
  });
}

}  // namespace blend
