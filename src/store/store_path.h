// The directory of a store: found or made, and judged before LMDB sees it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "base/status.h"

namespace blend {

inline constexpr char kDataFile[] = "data.mdb";

struct StoreDirectory {
  std::string data_path;
  std::pair<uint64_t, uint64_t> identity;  // device and inode of the data file
  uint32_t page_size = 0;                  // 0: the data file is new and empty
};

// `create`: makes the directory, missing parents and an empty data file, each made durable.
// Otherwise a missing one is NOT_FOUND. INVALID_ARGUMENT: `path` is empty or a file. UNSUPPORTED: a
// network file system. FORMAT, MISMATCH, CORRUPT: see check_lmdb_header(). IO otherwise.
Result<StoreDirectory> prepare_store_directory(const std::string& path, bool create);

}  // namespace blend
