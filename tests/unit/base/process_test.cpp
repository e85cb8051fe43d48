#include "base/threads/process.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

namespace blend {
namespace {

template <typename Body>
int in_child(const Body& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}

TEST(ProcessMark, AChildIsAnotherProcess) {
  const ProcessMark mark;
  EXPECT_TRUE(mark.is_this_process());
  EXPECT_EQ(0, in_child([&] {
              const ProcessMark own;
              return !mark.is_this_process() && own.is_this_process() ? 0 : 1;
            }));
  EXPECT_TRUE(mark.is_this_process());
}

TEST(ProcessMark, AChildOfTheSameNumberIsAnotherProcessToo) {
  const int result = in_child([] {
    if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) return 77;
    return in_child([] {  // process 1
      const ProcessMark mark;
      if (getpid() != 1 || unshare(CLONE_NEWPID) != 0) return 77;
      return in_child([&] { return getpid() == 1 && !mark.is_this_process() ? 0 : 1; });
    });
  });
  if (result == 77) GTEST_SKIP() << "no PID namespace can be made here";
  EXPECT_EQ(0, result);
}

}  // namespace
}  // namespace blend
