// Chunks from store to store by way of a file (FORMAT.md, "Export files").
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/cancel.h"
#include "store/chunk_store.h"

namespace blend {

struct Transfer {
  uint64_t n_chunks = 0;
  uint64_t bytes = 0;      // of K and V
  uint64_t n_skipped = 0;  // export of all: damaged ones; import: those that were there
};

// Writes the chunks of `ids`, or all if there are none, decoded. The file appears whole or not at
// all, under a name that is then replaced. Progress in chunks. NOT_FOUND, CORRUPT: one of `ids` is
// missing or damaged; of all chunks damaged ones are left out and reported as damage. IO, FULL.
Result<Transfer> export_chunks(ChunkStore& store, std::span<const Sha256> ids,
                               const std::string& path, const Watch& watch);

// Puts every chunk of a file, checked before it is put. `replace`: also those that are there.
// Progress in bytes of the file. FORMAT: not such a file, or truncated; MISMATCH: another version;
// CORRUPT: a checksum fails; and the errors of put. What was put before an error stays; `*done`
// says how much that was.
Status import_chunks(ChunkStore& store, const std::string& path, bool replace, const Watch& watch,
                     Transfer* done);

}  // namespace blend
