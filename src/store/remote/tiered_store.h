// TieredStore: a store with a remote tier above its disk. Look-ups go memory, disk, remote; what
// came from remote is kept on disk and in memory like any other chunk; what is put goes up behind
// the put.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "base/process.h"
#include "store/remote/remote_tier.h"
#include "store/store.h"
#include "store/worker.h"

namespace blend {

// Thread-safe.
class TieredStore final : public Store {
 public:
  // `open` opens the store below with the options given.
  using OpenStore =
      std::function<Result<std::shared_ptr<Store>>(const StoreOptions& options, EventSink events)>;
  static Result<std::shared_ptr<Store>> create(const StoreOptions& options,
                                               const RemoteOptions& remote, EventSink events,
                                               const OpenStore& open);
  ~TieredStore() override;

  // ChunkStore
  Result<std::unique_ptr<StoreSnapshot>> snapshot() override;
  // A chunk that only the remote tier has is brought here: whoever asks would compute it.
  Result<bool> contains(const Sha256& id) override;
  Status put(const ChunkRecord& record) override { return store_->put(record); }
  Status put_async(std::shared_ptr<const ChunkRecord> record) override {
    return store_->put_async(std::move(record));
  }
  void report_damage(const Sha256& id, const Status& status) override;
  void count_variant() override { store_->count_variant(); }

  // StoreUpkeep
  Status flush() override;
  Status wait(const Sha256& id, Deadline deadline, bool* pending) override {
    return store_->wait(id, deadline, pending);
  }
  Status for_each_used(bool verify, const VisitUsed& fn) override {
    return store_->for_each_used(verify, fn);
  }
  Result<UseRecord> use(const Sha256& id) override { return store_->use(id); }
  Result<StoreStat> stat() override;
  Status pin(const Sha256& id, bool pinned) override { return store_->pin(id, pinned); }
  Status evict(uint64_t target_bytes, uint64_t* n_evicted) override {
    return store_->evict(target_bytes, n_evicted);
  }
  Status hint(std::span<const Sha256> ids) override;
  Status set_layer_steps(const Sha256& fingerprint, std::vector<float> steps) override {
    return store_->set_layer_steps(fingerprint, std::move(steps));
  }
  Status set_tenant_quota(const TenantTag& tenant, uint64_t bytes) override {
    return store_->set_tenant_quota(tenant, bytes);
  }
  Result<TenantUse> tenant(const TenantTag& tenant) override { return store_->tenant(tenant); }
  Status repair(const Visit& fn, uint64_t* n_removed) override {
    return store_->repair(fn, n_removed);
  }
  Status copy_to(const std::string& path) override { return store_->copy_to(path); }

  // StoredChunks
  Result<std::unique_ptr<StoredChunk>> stored(const Sha256& id) override {
    return store_->stored(id);
  }
  Status put_stored(const StoredLayout& layout,
                    std::shared_ptr<const AlignedBuffer> stream) override {
    return store_->put_stored(layout, std::move(stream));
  }

  // StoreNotes
  Result<std::vector<Note>> notes(std::string_view prefix) override {
    return store_->notes(prefix);
  }
  Status change_note(std::string_view name, const Change& change) override {
    return store_->change_note(name, change);
  }

  RemoteShelf* remote() override { return &shelf_; }

 private:
  class Snapshot;
  // What an operator does with the tier.
  class Shelf final : public RemoteShelf {
   public:
    explicit Shelf(TieredStore& store) : store_(store) {}
    Status check() override;
    Result<std::vector<Sha256>> list(const Problem& problem) override;
    Status push(const Sha256& id, bool* existed) override;
    Status pull(const Sha256& id, bool* existed) override;
    Status verify(const Sha256& id) override;
    Status remove(const Sha256& id) override;
    Result<RemoteSpeed> measure() override;

   private:
    TieredStore& store_;
  };

  TieredStore(bool read_only, uint32_t drain_ms, EventSink events)
      : read_only_(read_only), drain_(drain_ms), events_(std::move(events)), shelf_(*this) {}
  Status check_fork() const;
  Status remove_of(const Sha256& id, const TenantTag* tenant) override;
  Status rename_of(const Sha256& id, const TenantTag* tenant, const ChunkName& name,
                   bool* changed) override;
  void upload_later(const Sha256& id) noexcept;
  void upload_queued(const Sha256& id) noexcept;
  Status upload(const Sha256& id, bool* existed);
  // Until all that was put has gone up, or that has taken too long.
  void wait_for_uploads();
  void tell_given_up(size_t n_chunks) const;
  // Writes what has come whole to the disk.
  Status keep(Arrival& arrival);
  void keep_later(const std::shared_ptr<Arrival>& arrival);
  // Brings a chunk to the disk; waits for it.
  Status fetch(const Sha256& id, const TenantTag* tenant,
               std::shared_ptr<LookUps> look_ups = nullptr);
  void read_ahead(const std::vector<Sha256>& ids, uint64_t hint);

  const ProcessMark process_;
  const bool read_only_;
  const std::chrono::milliseconds drain_;
  const EventSink events_;
  Shelf shelf_;
  std::atomic<uint64_t> hints_{0};
  std::mutex mutex_;
  std::condition_variable uploaded_;
  // mutex_: queued or under way; true: it was changed since that began, and goes up again.
  std::unordered_map<Sha256, bool, Sha256Hash> uploads_;
  bool closed_ = false;  // mutex_
  std::unique_ptr<RemoteTier> tier_;
  std::unique_ptr<Worker> keeper_;  // writes to the disk what has come
  std::unique_ptr<Worker> ahead_;   // reads ahead for hints
  std::shared_ptr<Store> store_;
};

// open_lmdb_store() with a remote tier above it.
Result<std::shared_ptr<Store>> open_tiered_store(const std::string& path,
                                                 const StoreOptions& options,
                                                 const RemoteOptions& remote, EventSink events);

}  // namespace blend
