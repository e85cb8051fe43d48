// Checks the pages of an LMDB 0.9 data file (page_format.h) before LMDB follows them.
//
// LMDB trusts its pages: a flipped bit in a node's offset, a page number or the list of free pages
// makes it read outside the map, abort the host on an assertion, or overwrite live pages later.
// Values are left to our own checksums; everything else that LMDB follows is checked here, page by
// page, with pread, so that nothing in a damaged or truncated file can hurt the process. The trees
// of a store are small (one page for about 60 pieces of 1 MiB), so this costs milliseconds.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace blend {

// Checks the two meta pages, because mdb_env_open() uses them before it checks them. `fd` is
// the data file. FORMAT: not an LMDB file. MISMATCH, UNSUPPORTED: another LMDB format or page size.
// CORRUPT: truncated. Returns the page size.
Result<uint32_t> check_lmdb_header(int fd);

// Whether LMDB's very first write to the file was cut short, by a full disk or a kill: nothing was
// ever committed to it.
bool lmdb_file_was_never_begun(int fd);

// Whether the last page that LMDB's newest snapshot may refer to lies inside the file: a sufficient
// test in constant time. False does not prove damage, since LMDB need not write its last pages if
// they are free.
bool lmdb_file_is_long_enough(int fd, uint64_t last_page, uint32_t page_size);

// Walks every tree and the list of free pages of snapshot `txn_id`, which the caller must hold open
// by a read transaction. Every page is visited once, is of the right kind, has its nodes and keys
// in order, lies inside the file; no page is both free and in use. `*stale`: the snapshot's meta
// page has been overwritten (two commits went by before the caller's transaction was registered):
// begin another and try again. Databases of other names than ours are not entered.
Status check_lmdb_pages(int fd, uint32_t page_size, uint64_t txn_id, bool* stale);

}  // namespace blend
