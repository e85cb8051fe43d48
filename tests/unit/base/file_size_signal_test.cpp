#include "base/files/file_size_signal.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace blend {
namespace {

// In a child, for the limit is the process's: what `body` returns, or 128 and the signal.
template <typename Body>
int limited(const Body& body) {
  const pid_t child = fork();
  if (child == 0) {
    const struct rlimit limit { 4, 4 };
    setrlimit(RLIMIT_FSIZE, &limit);
    _exit(body(fileno(tmpfile())));
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int write_past(int fd) {
  (void)!pwrite(fd, "1234", 4, 0);
  return pwrite(fd, "5", 1, 4) == -1 && errno == EFBIG ? 0 : 1;
}

TEST(FileSizeSignal, AWriteFailsAndTheProcessGoesOn) {
  EXPECT_EQ(128 + SIGXFSZ, limited(write_past));
  EXPECT_EQ(0, limited([](int fd) {
              int bad = 0;
              for (int i = 0; i < 3; ++i) {
                FileSizeSignalHeld outer;
                const FileSizeSignalHeld moved(std::move(outer));
                const FileSizeSignalHeld inner;
                bad += write_past(fd);
              }
              return bad;
            }));
}

TEST(FileSizeSignal, WhatTheHostIsSentStaysItsOwn) {
  EXPECT_EQ(128 + SIGXFSZ, limited([](int fd) {
              { const FileSizeSignalHeld held; }
              return write_past(fd);  // the mask is the host's again
            }));
  EXPECT_EQ(0, limited([](int fd) {
              sigset_t set, pending;
              sigemptyset(&set);
              sigaddset(&set, SIGXFSZ);
              pthread_sigmask(SIG_BLOCK, &set, nullptr);
              raise(SIGXFSZ);
              {
                const FileSizeSignalHeld held;
                if (write_past(fd) != 0) return 1;
              }
              sigpending(&pending);
              return sigismember(&pending, SIGXFSZ) == 1 ? 0 : 2;
            }));
}

}  // namespace
}  // namespace blend
