// Translates LMDB's return codes for callers of the store.
#pragma once

#include <lmdb.h>

#include <cstdint>
#include <string>

#include "base/status.h"

namespace blend {

// Code and sentence for an LMDB or errno code; the detail is `rc`.
Status lmdb_error(int rc, const std::string& what);

// LMDB reports EIO where a write was cut short. Returns whether there is no space for `bytes` more
// of a file: on the disk, or by the limit on a file's size.
bool out_of_space(int fd, uint64_t bytes);
// mdb_txn_commit(); returns ENOSPC instead of such an EIO.
int commit_lmdb(MDB_txn* txn);

}  // namespace blend
