// ChunkWriter: what one write transaction does to chunks: their pieces, manifests and the counters
// change together or not at all.
#pragma once

#include <span>
#include <string>

#include "store/lmdb_snapshot.h"

namespace blend {

// The counters as one transaction sees them; counted anew, with an event, when they are damaged.
Result<StoreCounters> read_counters(const Txn& txn, const MapView& view, const StoreCommon& common);

// Used by one thread. Destroyed without commit() it leaves the store as it was.
class ChunkWriter {
 public:
  // Waits for the writer of this or another process.
  static Result<ChunkWriter> begin(const StoreCommon& common);

  // Removes the manifest and every piece of `id`, whatever its manifest says of their number.
  // `*found`: there was any of it. CORRUPT: it cannot be freed safely.
  Status erase(const Sha256& id, bool* found);
  // Writes a chunk that is not there. stream: manifest.stream_bytes() as stored.
  Status add(const Manifest& manifest, std::span<const std::byte> stream);
  // Once, last. The detail of its status is LMDB's code.
  Status commit();

  const StoreCounters& counters() const { return counters_; }

 private:
  ChunkWriter(Txn txn, const MapView& view, const StoreCounters& counters)
      : txn_(std::move(txn)), view_(view), counters_(counters) {}

  Txn txn_;
  MapView view_;
  StoreCounters counters_;
};

}  // namespace blend
