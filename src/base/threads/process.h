// ProcessMark: which process something belongs to. Threads, locks and LMDB's reader slots do not
// survive a fork, so their owner asks before using them.
//
// The process id alone is not enough: a child that begins a PID namespace has the id of a parent
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
  uint64_t n_forks_;  // since the first process that made a mark
};

}  // namespace blend
