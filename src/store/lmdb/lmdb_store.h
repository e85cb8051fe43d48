// LmdbStore: a Store in one LMDB environment (FORMAT.md has the layout).
//
// lmdb_store.cpp opens and finds chunks, put.cpp writes them, list.cpp goes through them,
// retention.cpp decides which of them stay, hint.cpp reads ahead, stored.cpp passes chunks on in
// stored form, notes.cpp keeps records other than chunks.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "store/lmdb/chunk_writer.h"
#include "store/lmdb/make_room.h"
#include "store/lmdb/put_turns.h"
#include "store/store.h"
#include "store/worker.h"
#include "store/write_back.h"

namespace blend {

// Thread-safe.
class LmdbStore final : public Store {
 public:
  LmdbStore(const StoreOptions& options, std::shared_ptr<StoreCommon> common);
  ~LmdbStore() override;
  // Builds the indices of use and of texts where a store has none, or outdated ones. Once, before
  // the first use.
  Status prepare();

  // ChunkStore
  Result<std::unique_ptr<StoreSnapshot>> snapshot() override;
  Result<bool> contains(const Sha256& id) override;
  Status put(const ChunkRecord& record) override;
  Status put_async(std::shared_ptr<const ChunkRecord> record) override;
  void report_damage(const Sha256& id, const Status& status) override;
  void count_variant() override { common_->variant_hits.fetch_add(1, std::memory_order_relaxed); }

  // StoreUpkeep
  Status flush() override;
  Status wait(const Sha256& id, Deadline deadline, bool* pending) override;
  Status for_each_used(bool verify, const VisitUsed& fn) override;
  Result<UseRecord> use(const Sha256& id) override;
  Result<StoreStat> stat() override;
  Status pin(const Sha256& id, bool pinned) override;
  Status evict(uint64_t target_bytes, uint64_t* n_evicted) override;
  Status hint(std::span<const Sha256> ids) override;
  Status set_layer_steps(const Sha256& fingerprint, std::vector<float> steps) override;
  Status set_tenant_quota(const TenantTag& tenant, uint64_t bytes) override;
  Result<TenantUse> tenant(const TenantTag& tenant) override;
  Status repair(const Visit& fn, uint64_t* n_removed) override;
  Status copy_to(const std::string& path) override;

  // StoredChunks
  Result<std::unique_ptr<StoredChunk>> stored(const Sha256& id) override;
  Status put_stored(const StoredLayout& layout,
                    std::shared_ptr<const AlignedBuffer> stream) override;

  // StoreNotes
  Result<std::vector<Note>> notes(std::string_view prefix) override;
  Status change_note(std::string_view name, const Change& change) override;

  // Waits until the chunks of the last hint are in memory. For measurements.
  void wait_for_reading_ahead() { worker_->drain(); }

  // Map size for a store with this quota and chunks of this footprint.
  static uint64_t map_bytes_for(uint64_t quota, uint64_t chunk);

 private:
  Status remove_of(const Sha256& id, const TenantTag* tenant) override;
  Status rename_of(const Sha256& id, const TenantTag* tenant, const ChunkName& name,
                   bool* changed) override;
  Result<bool> is_of(const Sha256& id, const TenantTag& tenant);
  std::optional<UseRecord> use_of(const Txn& txn, const Sha256& id) const;
  Status check_writable() const;
  struct Record {
    const ChunkRecord* record = nullptr;
    std::shared_ptr<const ChunkRecord> shared;  // the same, if memory may keep it
  };
  // Null: all layers alike.
  std::shared_ptr<const std::vector<float>> layer_steps_of(const Sha256& fingerprint) const;
  Status write(const ChunkRecord& record);
  // Returns the status of each.
  void write_all(std::span<const Record> records, std::span<Status> statuses);
  // Settles the puts.
  void run_turns(std::span<PutTurns::Put* const> puts);
  // The status of a put whose transaction gave `status`.
  Status conclude(const Status& status, const Record& record, const Manifest& manifest);
  // One transaction for the next puts in the queue.
  Status put_waiting();
  Result<Room> put_one(ChunkWriter& writer, const EncodedChunk& chunk, const TenantTag& tenant);
  Result<Room> room_for(ChunkWriter& writer, const Manifest& manifest, const TenantTag& tenant,
                        UseRecord* use);
  Result<Room> make_room_or_rebuild(ChunkWriter& writer, const RoomRequest& request);
  std::shared_ptr<const EvictionPolicy> policy() const;
  uint64_t expired_us() const;
  void tell(const Room& room) const;  // events, after the commit
  Status write_touches();
  void keep_in_ram(const std::shared_ptr<const ChunkRecord>& record, const Manifest& manifest);
  void read_ahead(const std::vector<Sha256>& ids, uint64_t hint);
  Status read_into_ram(const Sha256& id, uint64_t hint);

  const StoreOptions options_;
  const std::shared_ptr<StoreCommon> common_;
  LmdbEnv& env_;
  mutable std::mutex mutex_;
  std::shared_ptr<const EvictionPolicy> policy_;                             // mutex_
  std::map<Sha256, std::shared_ptr<const std::vector<float>>> layer_steps_;  // mutex_: by model
  PutTurns turns_;
  std::atomic<uint64_t> hints_{0};       // number of the last hint; reading for older ones stops
  std::atomic<uint64_t> prefetched_{0};  // chunks
  bool rebuilt_ = false;                 // mutex_: the index was rebuilt for want of space
  UseTotals written_totals_;             // mutex_: the share of the counters that is on disk
  uint64_t written_variant_hits_ = 0;    // mutex_: likewise
  std::unique_ptr<Worker> worker_;
  std::unique_ptr<WriteBack> write_back_;  // last: its thread uses all of the above
};

}  // namespace blend
