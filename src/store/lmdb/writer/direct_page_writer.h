// place_value: the pages of a new value, written before the transaction's commit writes the rest.
//
// LMDB keeps a transaction's changes on the heap, copies them into the page cache when it commits,
// and only then lets the disk begin: three things one after another. The pages of a large value are
// chosen when it is put, belong to it alone, and no reader sees them before the commit. So they can
// be written to the file at once, and the disk works while the next ones come.
#pragma once

#include <lmdb.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"

namespace blend {

// Values from this size are placed: they fill pages of their own whatever a page's size.
inline constexpr size_t kPlacedBytes = 64u << 10;

// Whether this version of LMDB knows page_format::kKeep, which makes its commit skip a page.
bool lmdb_can_place();

// Writes `bytes` to the pages that LMDB has just reserved for `value` in the open transaction,
// keeps the commit from writing them, and returns the first of them. 0: they are not as
// expected, and nothing was done. The commit's sync makes them durable. The detail of an error is
// the errno.
Result<uint64_t> place_value(int data_fd, uint32_t page_size, const MDB_val& value,
                             std::span<const std::byte> bytes);

// After the commit: whether it skipped the page. If not, the page's flags are corrected.
Result<bool> placed_as_expected(int data_fd, uint32_t page_size, uint64_t page);

}  // namespace blend
