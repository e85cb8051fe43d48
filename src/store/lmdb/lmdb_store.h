// LmdbStore: a Store in one LMDB environment (FORMAT.md has the layout), made of a catalog, which
// finds chunks, a writer, which puts them behind a queue, retention, which decides which of them
// stay, and a prefetcher, which reads ahead.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "store/lmdb/catalog.h"
#include "store/lmdb/notes.h"
#include "store/lmdb/prefetcher.h"
#include "store/lmdb/retention.h"
#include "store/lmdb/store_common.h"
#include "store/lmdb/writer.h"
#include "store/store.h"
#include "store/worker.h"
#include "store/write_back.h"

namespace blend {

// Thread-safe.
class LmdbStore final : public Store {
 public:
  LmdbStore(const StoreOptions& options, std::unique_ptr<StoreCommon> common, LayerReads reads);
  ~LmdbStore() override;
  // Once, before the first use.
  Status prepare() { return retention_.prepare(); }

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
  Result<UseRecord> use(const Sha256& id) override { return retention_.use(id); }
  Result<StoreStat> stat() override;
  Status pin(const Sha256& id, bool pinned) override;
  Status evict(uint64_t target_bytes, uint64_t* n_evicted) override;
  Status hint(std::span<const Sha256> ids) override { return prefetcher_.hint(ids); }
  Status set_layer_steps(const Sha256& fingerprint, std::vector<float> steps) override {
    return writer_.set_layer_steps(fingerprint, std::move(steps));
  }
  Status set_tenant_quota(const TenantTag& tenant, uint64_t bytes) override {
    return retention_.set_tenant_quota(tenant, bytes);
  }
  Result<TenantUse> tenant(const TenantTag& tenant) override { return retention_.tenant(tenant); }
  Status repair(const Visit& fn, uint64_t* n_removed) override;
  Status copy_to(const std::string& path) override;

  // StoredChunks
  Result<std::unique_ptr<StoredChunk>> stored(const Sha256& id) override {
    return catalog_.stored(id);
  }
  Status put_stored(const StoredLayout& layout,
                    std::shared_ptr<const AlignedBuffer> stream) override;

  // StoreNotes
  Result<std::vector<Note>> notes(std::string_view prefix) override {
    return read_notes(env_, prefix);
  }
  Status change_note(std::string_view name, const Change& change) override {
    return blend::change_note(*common_, name, change);
  }

  // Waits until the chunks of the last hint are in memory. For measurements.
  void wait_for_reading_ahead() { worker_->drain(); }

 private:
  Status remove_of(const Sha256& id, const TenantTag* tenant) override;
  Status rename_of(const Sha256& id, const TenantTag* tenant, const ChunkName& name,
                   bool* changed) override;
  Result<bool> is_of(const Sha256& id, const TenantTag& tenant);

  const uint64_t quota_bytes_;
  const std::unique_ptr<StoreCommon> common_;
  LmdbEnv& env_;
  std::unique_ptr<Worker> worker_;
  Retention retention_;
  Catalog catalog_;
  Writer writer_;
  Prefetcher prefetcher_;
  std::unique_ptr<WriteBack> write_back_;  // last: its threads use all of the above
};

}  // namespace blend
