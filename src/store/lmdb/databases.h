// The databases of a store's environment (FORMAT.md), opened or made.
#pragma once

#include <lmdb.h>

#include "base/status.h"

namespace blend {

struct Databases {
  MDB_dbi chunks = 0, meta = 0, info = 0;
  MDB_dbi uses = 0, order = 0, tenants = 0;  // in stores that were ever opened for writing
  MDB_dbi texts = 0;  // 0: not there. In stores opened for writing since it exists
};

// LMDB opens databases in one transaction at a time: the caller ensures that.

// The first three. Creates them, the format record and empty counters if the environment is
// empty and `create` is set. NOT_FOUND: there is no store yet. FORMAT, MISMATCH, CORRUPT: it
// does not hold a store that this build reads.
Status open_chunk_tables(MDB_env* env, bool create, Databases* out);
// The others. False: they are not there, so the use of the chunks is unknown. `texts` may be
// missing alone, where nothing is to be created.
Result<bool> open_use_tables(MDB_env* env, bool create, Databases* out);

}  // namespace blend
