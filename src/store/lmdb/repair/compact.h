// A compact copy of a store. The one that replaces its own data file is compact_store()
// (store_admin.h).
#pragma once

#include <string>

#include "store/lmdb/environment.h"

namespace blend {

// Writes a consistent copy of the store, without its free pages, into the directory `path`, which
// must not hold a store. Readers and writers go on meanwhile. INVALID_ARGUMENT, IO, FULL.
Status copy_compact(LmdbEnv& env, const std::string& path);

}  // namespace blend
