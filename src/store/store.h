// Store: a persistent chunk store. A catalog finds chunks, a writer puts them, retention decides
// which of them stay, a prefetcher reads ahead, a write-back queue takes background puts, and a
// remote tier can stand above the disk. Look-ups go memory, disk, remote.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "store/chunk/stored_chunks.h"
#include "store/chunk_store.h"
#include "store/notes.h"
#include "store/options.h"
#include "store/store_admin.h"

namespace blend {

class Catalog;
class Prefetcher;
class RemoteLink;
class Retention;
class Worker;
class WriteBack;
class Writer;
struct LayerReads;
struct RemoteOptions;
struct StoreCommon;

// Thread-safe.
class Store final : public ChunkStore, public StoreAdmin, public StoredChunks, public StoreNotes {
 public:
  // In the directory `path`. The log is told on any thread until the store is destroyed.
  static Result<std::shared_ptr<Store>> open(const std::string& path, const StoreOptions& options,
                                             Log log);
  // With a remote tier above the disk: what comes from there is kept on disk and in memory like any
  // other chunk, and what is put is uploaded in the background.
  static Result<std::shared_ptr<Store>> open(const std::string& path, const StoreOptions& options,
                                             const RemoteOptions& remote, Log log);
  ~Store() override;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // ChunkStore
  Result<std::unique_ptr<StoreSnapshot>> snapshot() override;
  // A chunk that only the remote tier has is brought here: whoever asks would compute it.
  Result<bool> contains(const Sha256& id) override;
  Status put(const ChunkRecord& record) override;
  Status put_async(std::shared_ptr<const ChunkRecord> record) override;
  void report_damage(const Sha256& id, const Status& status) override;
  void count_variant() override;

  // StoreAdmin
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
  RemoteAdmin* remote() override;

  // StoredChunks
  Result<std::unique_ptr<StoredChunk>> stored(const Sha256& id) override;
  Result<bool> has(const Sha256& id) override;
  Status put_stored(const StoredLayout& layout,
                    std::shared_ptr<const AlignedBuffer> stream) override;

  // StoreNotes
  Result<std::vector<Note>> notes(std::string_view prefix) override;
  Status change_note(std::string_view name, const Change& change) override;

  // Waits until the chunks of the last hint are in memory. For measurements.
  void wait_for_reading_ahead();

 private:
  Store(const StoreOptions& options, std::unique_ptr<StoreCommon> common, LayerReads reads);
  static Result<std::shared_ptr<Store>> open_with(const std::string& path,
                                                  const StoreOptions& options, Log log,
                                                  std::unique_ptr<RemoteLink> remote);
  Status remove_of(const Sha256& id, const TenantTag* tenant) override;
  Status rename_of(const Sha256& id, const TenantTag* tenant, const ChunkName& name,
                   bool* changed) override;
  Result<bool> is_of(const Sha256& id, const TenantTag& tenant);

  const StoreOptions options_;
  const std::unique_ptr<StoreCommon> common_;
  std::unique_ptr<Worker> worker_;  // of retention and the prefetcher
  const std::unique_ptr<Retention> retention_;
  const std::unique_ptr<Catalog> catalog_;
  const std::unique_ptr<Writer> writer_;
  const std::unique_ptr<Prefetcher> prefetcher_;
  std::unique_ptr<WriteBack> write_back_;  // its threads use all of the above
  std::unique_ptr<RemoteLink> remote_;     // null: no remote tier
};

}  // namespace blend
