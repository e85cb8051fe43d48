// The directory of a store: found or made, and judged before LMDB opens the file in it.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "store/lmdb/registry.h"

namespace blend {

inline constexpr char kDataFile[] = "data.mdb";
inline constexpr char kLockFile[] = "lock.mdb";

struct StoreDirectory {
  std::string data_path;
  FileIdentity identity;   // of the data file
  uint32_t page_size = 0;  // 0: the data file is new and empty
};

// `create`: makes the directory, missing parents and an empty data file, each made durable.
// Otherwise a missing one is NOT_FOUND. INVALID_ARGUMENT: `path` is empty or a file. UNSUPPORTED: a
// network file system. FORMAT, MISMATCH, CORRUPT: see check_lmdb_header(). IO otherwise.
Result<StoreDirectory> prepare_store_directory(const std::string& path, bool create);
// Makes a directory that a store may be put into, with missing parents.
Status make_store_directory(const std::string& path);

}  // namespace blend
