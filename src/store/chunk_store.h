// ChunkStore: where a fuse finds chunks and puts those that it had to prefill. Other operations of
// a store are in store_admin.h; both together are a Store (store.h).
#pragma once

#include <memory>
#include <span>

#include "base/status.h"
#include "store/chunk/chunk.h"

namespace blend {

// A consistent view of the store. Chunks it returned stay readable while it lives, whatever others
// put or remove. Used by one thread at a time; may move between threads; must not outlive the
// store's object.
class StoreSnapshot {
 public:
  virtual ~StoreSnapshot() = default;
  // NOT_FOUND: no such chunk, or not this tenant's (counted as a miss). CORRUPT: its description is
  // damaged (counted, and the log is told; treat as a miss). A chunk still in the write-back queue
  // is found too. Sources must not outlive the snapshot.
  Result<std::unique_ptr<ChunkSource>> open(const Sha256& id, const TenantTag& tenant) {
    return open_of(id, &tenant);
  }
  // Opens a chunk of any tenant: for callers that serve none.
  Result<std::unique_ptr<ChunkSource>> open(const Sha256& id) { return open_of(id, nullptr); }
  // Whether this machine has it, so that open() is worth a call; no other is asked. Counts nothing.
  // True for a damaged one too: open() reports that.
  virtual Result<bool> holds(const Sha256& id) = 0;
  // Whether other machines are asked for chunks that are missing here: then expect() is useful.
  virtual bool asks_others() const { return false; }
  // These are opened next. Other machines are now asked, in parallel, for those missing here, and
  // the opens together wait no longer than a fuse may: one that waited in vain returns NOT_FOUND
  // with ETIMEDOUT as its detail. May be called again for more: the time limit is shared.
  virtual void expect(std::span<const Sha256>) {}

 private:
  virtual Result<std::unique_ptr<ChunkSource>> open_of(const Sha256& id,
                                                       const TenantTag* tenant) = 0;
};

// Thread-safe. Every call first checks for fork (BLEND_E_FORKED).
class ChunkStore {
 public:
  virtual ~ChunkStore() = default;  // waits for the write-back queue

  virtual Result<std::unique_ptr<StoreSnapshot>> snapshot() = 0;
  // Whether the chunk is stored or queued. Opens no snapshot and counts no hit.
  virtual Result<bool> contains(const Sha256& id) = 0;
  // Durable when it returns. A chunk of the same id is replaced.
  virtual Status put(const ChunkRecord& record) = 0;
  // Queued; blocks while the queue is full. Its outcome: StoreAdmin::wait() and flush().
  virtual Status put_async(std::shared_ptr<const ChunkRecord> record) = 0;
  // For readers whose layer read gave CORRUPT: counts it and tells the log.
  virtual void report_damage(const Sha256& id, const Status& status) = 0;
  // For look-ups that opened the chunk stored after the exact preceding text, instead of the
  // plain one: counts the hit as a variant's.
  virtual void count_variant() {}
};

}  // namespace blend
