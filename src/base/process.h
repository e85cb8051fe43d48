// ProcessMark: which process something belongs to. Threads, locks and LMDB's reader slots do not
// follow a fork, so what holds them asks before it is used.
//
// The number alone does not tell: a child that begins a PID namespace has the number of a parent
// that began one too.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace blend {

class ProcessMark {
 public:
  ProcessMark();  // of this process
  bool is_this_process() const;
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
  uint64_t n_forks_;  // on the way from the first process that made a mark
};

}  // namespace blend
