// Writing system calls that fail, or kill the process, on demand: the program's own definitions
// take the place of libc's in it and in every library it loads.
//
// Between two of them nothing changes on disk, so a kill in front of each one is a kill at every
// state that the disk can be left in.
#pragma once

#include <cstdint>

namespace blend::test {

enum class IoFault {
  none,       // count only
  fail_eio,   // the Nth call fails with EIO
  fail_full,  // the Nth call and all later ones fail with ENOSPC; a write of many bytes is cut
              // first
  interrupt,  // the Nth call fails with EINTR, once; not renames and links, which none makes again
  kill,       // SIGKILL in front of the Nth
};

// While one of these lives, call number `n` (from 1) on a regular file meets `fault`. Syncs only
// count: a process that dies loses nothing of what it wrote. One at a time.
class FaultyIo {
 public:
  FaultyIo(IoFault fault, uint64_t n);
  ~FaultyIo();
  FaultyIo(const FaultyIo&) = delete;
  FaultyIo& operator=(const FaultyIo&) = delete;
  uint64_t calls() const;
  bool fired() const;
};

}  // namespace blend::test
