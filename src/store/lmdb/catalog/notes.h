// Notes in the database `info` (FORMAT.md), as StoreNotes says.
#pragma once

#include <string_view>
#include <vector>

#include "store/lmdb/store_common.h"
#include "store/notes.h"

namespace blend {

Result<std::vector<Note>> read_notes(LmdbEnv& env, std::string_view prefix);
Status change_note(StoreCommon& common, std::string_view name, const StoreNotes::Change& change);

}  // namespace blend
