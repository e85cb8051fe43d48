// Making a store's data file as small as its chunks.
#pragma once

#include <string>

#include "store/lmdb_env.h"

namespace blend {

// Writes a consistent copy of the store, without its free pages, into the directory `path`, which
// must not hold a store. Readers and writers go on meanwhile. INVALID_ARGUMENT, IO, FULL.
Status copy_compact(LmdbEnv& env, const std::string& path);

// Replaces the data file of the store in `path` by such a copy, in one rename; a crash leaves the
// old or the new one. Nobody may have the store open, in this process or another: BUSY. NOT_FOUND,
// CORRUPT, IO, FULL. `*before`, `*after`: bytes of the file.
Status compact_in_place(const std::string& path, uint64_t* before, uint64_t* after);

}  // namespace blend
