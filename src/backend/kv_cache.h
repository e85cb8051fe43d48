// RoPE tables and KV caches, and what names their rows.
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"

namespace blend {

// cos/sin of every position up to a limit. Immutable.
class RopeTable {
 public:
  virtual ~RopeTable() = default;
  virtual uint32_t n_positions() const = 0;
};

// The K (rotated) and V of one prompt, all layers, in a layout private to the backend. Concurrent
// calls may touch different layers.
class KvCache {
 public:
  virtual ~KvCache() = default;
  virtual uint32_t capacity() const = 0;  // slots
  // Another cache of the same capacity, with the first n_rows slots of this one; both share slots
  // that neither writes to; nobody else uses this one meanwhile. Null: no memory can be shared
  // here, so the rows must be copied (Backend::move_rows()).
  virtual Result<std::unique_ptr<KvCache>> fork(uint32_t n_rows) = 0;
};

// Rows that Backend::move_rows() takes to other slots.
struct RowMove {
  uint32_t src_layer = 0;
  uint32_t from = 0;
  uint32_t dst_layer = 0;
  uint32_t to = 0;
  uint32_t n = 0;    // slots [from, from + n) go to [to, to + n)
  int32_t turn = 0;  // positions by which K is rotated
};

}  // namespace blend
