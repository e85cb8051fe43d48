// Retention: which chunks of a store stay: the eviction policy, quotas, pins, times to live, and
// the stamps of use that they go by.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/threads/guarded.h"
#include "store/evict/policy.h"
#include "store/evict/touches.h"
#include "store/lmdb/catalog/manifest.h"
#include "store/lmdb/retention/evictor.h"
#include "store/lmdb/retention/lru_index.h"
#include "store/lmdb/store_common.h"
#include "store/lmdb/transaction.h"
#include "store/lmdb/writer/chunk_writer.h"
#include "store/options.h"
#include "store/queue/worker.h"
#include "store/store_admin.h"

namespace blend {

// Thread-safe. `common` and `worker` must outlive it.
class Retention {
 public:
  Retention(StoreCommon& common, Worker& worker, const StoreOptions& options);
  Retention(const Retention&) = delete;
  Retention& operator=(const Retention&) = delete;

  // Builds the indices of use and of texts where a store has none, or outdated ones. Once, before
  // the first use.
  Status prepare();

  // ---- Look-ups

  // Records a hit on a chunk that is on disk, if there is memory for that.
  void used(const Sha256& id) noexcept;
  // Whether the chunk was unused for longer than its time to live.
  bool expired(const LruIndex& index, const Sha256& id) const;
  // Whether the chunk is there and has not expired. if_damaged: the answer where its description
  // is.
  Result<bool> has(const Txn& txn, const MapView& view, const Sha256& id, bool if_damaged) const;
  // The chunk is removed: its hits do not count any more.
  void forget(const Sha256& id) { touches_.forget(id); }
  // The record of a chunk's use, with the hits that are not on disk yet. Empty: none is known.
  std::optional<UseRecord> use_of(const Txn& txn, const Sha256& id) const;

  // ---- Puts

  // Evicts until the chunk fits its quotas, inside the transaction that will put it. `*use`: the
  // record that it gets. FULL.
  Result<Room> room_for(ChunkWriter& writer, const Manifest& manifest, const TenantTag& tenant,
                        UseRecord* use);
  // After the commit: drops what was evicted from memory, and tells the log.
  void tell(const Room& room) const;
  // Evictions follow this policy from now on.
  void follow(std::shared_ptr<const EvictionPolicy> policy);

  // ---- Administration, as StoreAdmin says

  Status evict(uint64_t target_bytes, uint64_t* n_evicted);
  Result<UseRecord> use(const Sha256& id);
  Status pin(const Sha256& id, bool pinned);
  Status set_tenant_quota(const TenantTag& tenant, uint64_t bytes);
  Result<TenantUse> tenant(const TenantTag& tenant);

  // Writes the hits and counters that are not on disk yet.
  Status write_touches() BLEND_EXCLUDES(mutex_);

 private:
  std::shared_ptr<const EvictionPolicy> policy() const BLEND_EXCLUDES(mutex_);
  uint64_t expired_us() const;  // chunks with a stamp before this have expired; 0: none do
  Result<Room> make_room_or_rebuild(ChunkWriter& writer, const RoomRequest& request)
      BLEND_EXCLUDES(mutex_);

  StoreCommon& common_;
  Worker& worker_;
  const Eviction eviction_;
  const uint64_t quota_bytes_;
  const uint64_t tenant_quota_bytes_;
  const uint64_t most_variants_;
  const uint64_t ttl_us_;  // 0: nothing expires
  Touches touches_;
  mutable Mutex mutex_;
  std::shared_ptr<const EvictionPolicy> policy_ BLEND_GUARDED_BY(mutex_);
  // The index was rebuilt for want of space.
  bool rebuilt_ BLEND_GUARDED_BY(mutex_) = false;
  // The share of the counters that is on disk.
  UseTotals written_totals_ BLEND_GUARDED_BY(mutex_);
  uint64_t written_variant_hits_ BLEND_GUARDED_BY(mutex_) = 0;
  const bool notes_use_;  // a hit renews the chunk's stamp
};

}  // namespace blend
