// The directory of a store: found or made, and checked before LMDB opens the file in it.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "store/lmdb/registry.h"

namespace blend {

inline constexpr char kDataFile[] = "data.mdb";
inline constexpr char kLockFile[] = "lock.mdb";

// Modes of new files. The rows of a KV cache and its token ids are the text: for the owner
// alone, unless a group shares the store.
struct StoreModes {
  uint32_t directory = 0700;
  uint32_t file = 0600;
  static StoreModes of(bool group) { return group ? StoreModes{0770, 0660} : StoreModes{}; }
};

struct StoreDirectory {
  std::string data_path;
  FileIdentity identity;   // of the data file
  uint32_t page_size = 0;  // 0: the data file is new and empty
};

// `create`: with these modes makes the directory, missing parents (with the process's own) and
// empty files, each made durable. null: a missing one is NOT_FOUND. INVALID_ARGUMENT: `path` is
// empty or a file. UNSUPPORTED: a network file system. FORMAT: also a symbolic link instead of
// a file. MISMATCH, CORRUPT: see check_lmdb_header(). IO otherwise.
Result<StoreDirectory> prepare_store_directory(const std::string& path, const StoreModes* create);
// Allocates disk space for the lock file, which is made if it is missing, before LMDB writes to
// a map of it: a page of the map without space on a full disk would raise SIGBUS. Only for a
// process that has no environment open on it: closing the descriptor drops the locks. FULL. A file
// that may not be written is left unchanged.
Status reserve_lock_file(const std::string& file, uint64_t bytes);
// Makes a directory that a store may be put into, with missing parents.
Status make_store_directory(const std::string& path, const StoreModes& modes);

}  // namespace blend
