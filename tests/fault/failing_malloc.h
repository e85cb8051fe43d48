// A malloc that fails on demand: the program's own definitions take the place of glibc's in it and
// in every library it loads.
#pragma once

#include <cstdint>

namespace blend::test {

// While one of these lives, allocation number `n` (from 1) made by any thread fails; all later ones
// as well if `sticky`. One at a time.
class FailingMalloc {
 public:
  FailingMalloc(uint64_t n, bool sticky);
  ~FailingMalloc();
  FailingMalloc(const FailingMalloc&) = delete;
  FailingMalloc& operator=(const FailingMalloc&) = delete;
  // Has an allocation failed yet?
  bool fired() const;
};

// Blocks that are allocated and not freed, in the whole process.
int64_t live_blocks();

}  // namespace blend::test
