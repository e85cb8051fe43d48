// What LMDB's return codes mean to a caller of the store.
#pragma once

#include <lmdb.h>

#include <string>

#include "base/status.h"

namespace blend {

// Code and sentence for an LMDB or errno code; the detail is `rc`.
Status lmdb_error(int rc, const std::string& what);

// mdb_txn_commit(), which says EIO where a write was cut short: ENOSPC where the disk is full.
int commit_lmdb(MDB_txn* txn);

}  // namespace blend
