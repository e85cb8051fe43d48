// Descriptors that close themselves, and durable names.
#pragma once

#include <unistd.h>

#include <string>

#include "base/status.h"

namespace blend {

// Closes on every way out. Never used on LMDB's lock file while this process has the store open:
// closing any descriptor of that one drops the process's locks.
class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() {
    if (fd_ >= 0) close(fd_);
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

// Makes new names in a directory durable.
Status sync_directory(const std::string& path);
std::string parent_directory(const std::string& path);

}  // namespace blend
