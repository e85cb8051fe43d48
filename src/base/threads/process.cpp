#include "base/threads/process.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>

namespace blend {
namespace {

std::atomic<uint64_t> n_forks{0};

// Counts forks in every child from the first mark on. Without memory for the handler only the
// process ids are compared. If the library is unloaded, glibc removes the handler with it.
uint64_t forks_so_far() {
  static const int counted =
      pthread_atfork(nullptr, nullptr, [] { n_forks.fetch_add(1, std::memory_order_relaxed); });
  (void)counted;
  return n_forks.load(std::memory_order_relaxed);
}

}  // namespace

ProcessMark::ProcessMark() : pid_(getpid()), n_forks_(forks_so_far()) {}

bool ProcessMark::is_this_process() const {
  return n_forks_ == n_forks.load(std::memory_order_relaxed) && pid_ == getpid();
}

}  // namespace blend
