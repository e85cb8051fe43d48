// LmdbSnapshot: a read transaction of the store, and the chunk sources that read from it.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "base/cancel.h"
#include "store/chunk_store.h"
#include "store/evict/policy.h"
#include "store/evict/touches.h"
#include "store/evict/use_index.h"
#include "store/lmdb_env.h"
#include "store/manifest.h"
#include "store/page_reader.h"
#include "store/ram/ram_tier.h"
#include "store/write_back.h"

namespace blend {

// What a store's object shares with its snapshots. Thread-safe.
struct StoreCommon {
  std::shared_ptr<LmdbEnv> env;
  EventSink events;
  std::unique_ptr<PageReader> reader;  // null: layers are copied from the map
  bool cache_first = true;             // but for those that the page cache does not hold
  std::atomic<uint64_t> hits{0}, misses{0}, damaged{0}, written{0}, write_errors{0};
  std::atomic<uint64_t> ram_hits{0};  // of the hits

  uint64_t ttl_us = 0;     // 0: nothing expires
  bool notes_use = false;  // a hit renews the chunk's stamp
  Touches touches;
  std::shared_ptr<RamTier> ram;              // null: none
  std::function<bool()> write_touches_soon;  // unless empty; must not block. False: it cannot

  // A hit on a chunk that is on disk. What there is no memory for is not noted.
  void used(const Sha256& id) noexcept;
  // Unused for longer than its time to live.
  bool expired(const UseIndex& index, const Sha256& id) const;

  ~StoreCommon() {
    // A child has none of the threads that its readers wait for.
    if (env != nullptr && env->forked()) (void)reader.release();
  }
  void event(int32_t code, const std::string& message) const {
    if (events) events(code, message);
  }
  // Counts a damaged chunk and tells the event sink.
  void damage(const Status& status) {
    damaged.fetch_add(1, std::memory_order_relaxed);
    event(status.code(), status.message());
  }
};

// Key of a piece: id, then its number big-endian, so that LMDB keeps a chunk's pieces in order.
struct PieceKey {
  std::array<uint8_t, 36> bytes;
  PieceKey(const Sha256& id, uint32_t piece);
  MDB_val val() { return {bytes.size(), bytes.data()}; }
};
inline MDB_val id_val(const Sha256& id) { return {id.size(), const_cast<uint8_t*>(id.data())}; }

class LmdbSnapshot final : public StoreSnapshot {
 public:
  // `pending`: what the write-back queue held before the transaction began.
  LmdbSnapshot(std::shared_ptr<StoreCommon> common, Txn txn, MapView view, RecordMap pending)
      : common_(std::move(common)),
        pending_(std::move(pending)),
        txn_(std::move(txn)),
        view_(view) {}

  Result<std::unique_ptr<ChunkSource>> open(const Sha256& id) override;

 private:
  const std::shared_ptr<StoreCommon> common_;
  const RecordMap pending_;
  const Txn txn_;
  const MapView view_;
  std::mutex mutex_;  // LMDB's transaction, used by open() and the sources
};

// NOT_FOUND, or as decode_manifest().
Result<Manifest> read_manifest(const Txn& txn, const MapView& view, const Sha256& id);

}  // namespace blend
