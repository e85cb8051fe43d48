// StoredChunks: chunks in stored form, encoded, for a tier that keeps the same bytes elsewhere.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "base/status.h"
#include "store/chunk/description.h"

namespace blend {

using ByteSpans = std::vector<std::span<const std::byte>>;

// One chunk in one snapshot. Used by one thread at a time; must not outlive the store's object.
class StoredChunk {
 public:
  virtual ~StoredChunk() = default;
  virtual const StoredLayout& layout() const = 0;
  // Appends the locations of these bytes of the stream, in order. Valid while this object lives;
  // not checked against the layers' checksums. CORRUPT, INVALID_ARGUMENT (outside the stream).
  virtual Status find(uint64_t offset, uint64_t bytes, ByteSpans& out) = 0;
};

// Thread-safe.
class StoredChunks {
 public:
  virtual ~StoredChunks() = default;
  // NOT_FOUND: not stored, or only queued. CORRUPT: its description is damaged.
  virtual Result<std::unique_ptr<StoredChunk>> stored(const Sha256& id) = 0;
  // Whether it is stored or queued; no other machine is asked.
  virtual Result<bool> has(const Sha256& id) = 0;
  // Durable when it returns. stream: layout.stream_bytes() whose layers the caller has checked;
  // may be kept in memory.
  virtual Status put_stored(const StoredLayout& layout,
                            std::shared_ptr<const AlignedBuffer> stream) = 0;
};

}  // namespace blend
