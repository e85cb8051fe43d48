// Threads of ours take no signals from the host, whatever the mask of the thread that starts them.
#include "base/threads/start_thread.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <set>
#include <stdexcept>

#include "base/threads/thread_pool.h"

namespace blend {
namespace {

std::set<int> mask_here() {
  sigset_t mask;
  sigemptyset(&mask);
  pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  std::set<int> blocked;
  for (int s = 1; s <= SIGRTMAX; ++s) {
    if (sigismember(&mask, s) == 1) blocked.insert(s);
  }
  return blocked;
}

// All that the system lets a program block, glibc and emulators keep some to themselves, but
// faults.
std::set<int> all_but_faults() {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::set<int> blocked = mask_here();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT}) {
    blocked.erase(fault);
  }
  return blocked;
}

void set_mask(std::initializer_list<int> blocked) {
  sigset_t mask;
  sigemptyset(&mask);
  for (const int s : blocked) sigaddset(&mask, s);
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);
}

std::set<int> mask_of_a_thread() {
  std::set<int> mask;
  start_thread([&] { mask = mask_here(); }).join();
  return mask;
}

class StartThread : public testing::Test {
 protected:
  void TearDown() override { set_mask({}); }
};

TEST_F(StartThread, BlocksAllButFaultsWhateverItsStarterBlocks) {
  set_mask({});
  EXPECT_EQ(mask_of_a_thread(), all_but_faults());
  set_mask({SIGSEGV, SIGINT});
  EXPECT_EQ(mask_of_a_thread(), all_but_faults());
}

TEST_F(StartThread, GivesTheStarterItsOwnMaskBack) {
  set_mask({SIGSEGV, SIGUSR2});
  const std::set<int> before = mask_here();
  mask_of_a_thread();
  EXPECT_EQ(mask_here(), before);

  struct Throws {
    Throws() = default;
    Throws(const Throws&) { throw std::runtime_error("no thread"); }
    void operator()() const {}
  };
  const Throws throws;
  EXPECT_THROW(start_thread(throws), std::runtime_error);
  EXPECT_EQ(mask_here(), before);
}

// A host that blocks a signal everywhere and waits for it in sigwait() must get it: a thread of
// ours that had it open would take it, and end the process.
TEST_F(StartThread, ASignalIsThereForSigwait) {
  set_mask({});
  auto made = ThreadPool::create(4);
  ASSERT_TRUE(made.is_ok());
  const std::unique_ptr<ThreadPool> pool = std::move(made.value());
  set_mask({SIGUSR1});  // afterwards: the pool's threads have not inherited it
  sigset_t wanted;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGUSR1);
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(kill(getpid(), SIGUSR1), 0);
    pool->parallel_for(64, 1, [](size_t, size_t, uint32_t) {});
    int got = 0;
    ASSERT_EQ(sigwait(&wanted, &got), 0);
    ASSERT_EQ(got, SIGUSR1);
  }
}

TEST_F(StartThread, ThreadsOfAPoolAreStartedSo) {
  auto made = ThreadPool::create(3);
  ASSERT_TRUE(made.is_ok());
  const std::unique_ptr<ThreadPool> pool = std::move(made.value());
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<int> on_workers{0};
  std::atomic<int> wrong{0};
  while (on_workers == 0) {
    pool->parallel_for(64, 1, [&](size_t, size_t, uint32_t) {
      if (std::this_thread::get_id() == caller) return;
      ++on_workers;
      if (mask_here() != all_but_faults()) ++wrong;
    });
  }
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace blend
