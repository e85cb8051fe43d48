// How every thread of ours starts: with signals blocked, so that a host's handlers run on the
// host's own threads, where it expects them, and what it waits for in sigwait() comes there.
//
// Left open are the signals that a thread's own instruction raises: blocked, the kernel would end
// the process where a handler was to mend it (a JVM's null checks in a callback, a crash reporter).
//
// Of the standard library alone, for the bindings compile it too.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <exception>
#include <thread>
#include <utility>

namespace blend {

// While it lives, threads that this one starts inherit that mask, whatever this one's own is: it
// gets that back behind it. A signal that comes meanwhile waits, or goes to another thread. Not to
// be held over long work.
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
    // What a thread's first exception needs is taken now: where memory is out by then, glibc would
    // end the process.
    [[maybe_unused]] volatile int taken = std::uncaught_exceptions();
    fn();
  });
}

}  // namespace blend
