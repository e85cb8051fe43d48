// A machine with larger pages: the program's own sysconf() and mmap() take the place of libc's in
// it and in every library that it loads.
#pragma once

#include <cstddef>

namespace blend::test {

// While one of these lives, a page has `page_bytes`, at least as many as this machine's: that is
// what sysconf() says, and files are mapped at multiples of it. One at a time.
class OtherMachine {
 public:
  explicit OtherMachine(size_t page_bytes);
  ~OtherMachine();
  OtherMachine(const OtherMachine&) = delete;
  OtherMachine& operator=(const OtherMachine&) = delete;
};

}  // namespace blend::test
