// The directory of a store: found or made, and judged before LMDB sees it.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <string>
#include <utility>

#include "base/status.h"

namespace blend {

inline constexpr char kDataFile[] = "data.mdb";

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

struct StoreDirectory {
  std::string data_path;
  std::pair<uint64_t, uint64_t> identity;  // device and inode of the data file
  uint32_t page_size = 0;                  // 0: the data file is new and empty
};

// `create`: makes the directory, missing parents and an empty data file, each made durable.
// Otherwise a missing one is NOT_FOUND. INVALID_ARGUMENT: `path` is empty or a file. UNSUPPORTED: a
// network file system. FORMAT, MISMATCH, CORRUPT: see check_lmdb_header(). IO otherwise.
Result<StoreDirectory> prepare_store_directory(const std::string& path, bool create);
// Makes a directory that a store may be put into, with missing parents.
Status make_store_directory(const std::string& path);

}  // namespace blend
