// Export of chunks to a file and import into another store (FORMAT.md, "Export files").
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/threads/cancel.h"
#include "store/store.h"

namespace blend {

struct Transfer {
  uint64_t n_chunks = 0;
  uint64_t bytes = 0;      // of K and V
  uint64_t n_skipped = 0;  // export of all: damaged ones; import: those already stored
};

// Writes the chunks of `ids`, or all if `ids` is empty, decoded. The file is written under another
// name and renamed at the end. Progress in chunks. NOT_FOUND, CORRUPT: one of `ids` is missing or
// damaged; an export of all leaves damaged chunks out and reports them. IO, FULL.
Result<Transfer> export_chunks(Store& store, std::span<const Sha256> ids, const std::string& path,
                               const Watch& watch);

// Puts every chunk of a file, once it is checked. `replace`: those already stored, too.
// Progress in bytes of the file. FORMAT: not such a file, or truncated; MISMATCH: another version;
// CORRUPT: a checksum fails; and the errors of put. Chunks put before an error stay; `*done`
// counts them.
Status import_chunks(ChunkStore& store, const std::string& path, bool replace, const Watch& watch,
                     Transfer* done);

}  // namespace blend
