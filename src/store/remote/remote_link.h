// RemoteLink: what goes between a store's disk and its remote tier. Chunks that are put are
// uploaded in the background; chunks that have come are written to the disk; a snapshot asks the
// tier for what the disk does not have.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/threads/guarded.h"
#include "base/threads/process.h"
#include "store/chunk/stored_chunks.h"
#include "store/chunk_store.h"
#include "store/queue/worker.h"
#include "store/remote/remote_tier.h"
#include "store/store_admin.h"

namespace blend {

// Thread-safe. Must not be destroyed in a forked child (the threads are not there): leak it.
class RemoteLink final : public RemoteAdmin {
 public:
  // INVALID_ARGUMENT, UNSUPPORTED. A server that is down is no error.
  static Result<std::unique_ptr<RemoteLink>> create(const RemoteOptions& remote, bool read_only,
                                                    EventSink events);
  ~RemoteLink() override;
  RemoteLink(const RemoteLink&) = delete;
  RemoteLink& operator=(const RemoteLink&) = delete;
  // The disk, which must outlive it. Once, before any other call.
  void serve(StoredChunks& disk) { disk_ = &disk; }

  // Looks up in the tier what the snapshot does not have.
  std::unique_ptr<StoreSnapshot> above(std::unique_ptr<StoreSnapshot> below);
  // Brings a chunk to the disk; waits for it.
  Status bring(const Sha256& id) { return fetch(id, nullptr); }
  void upload_later(const Sha256& id) noexcept BLEND_EXCLUDES(mutex_);
  // Waits until all that was put is uploaded, or that has taken too long, and until what has come
  // is on the disk.
  void flush();
  // A new hint: reading ahead for older ones ends. Its number.
  uint64_t begin_hint() { return hints_.fetch_add(1) + 1; }
  // Brings to the disk what only the tier has of `ids`, in the background; then calls `came`, if
  // any came and no later hint replaced this one.
  using Came = std::function<void(std::span<const Sha256> ids)>;
  void hint(uint64_t number, std::span<const Sha256> ids, Came came);
  void fill(RemoteStat& stat) const BLEND_EXCLUDES(mutex_);
  // Uploads as far as there is time, and ends its threads. The last call.
  void close() BLEND_EXCLUDES(mutex_);

  // RemoteAdmin
  Status check() override;
  Result<std::vector<Sha256>> list(const Problem& problem) override;
  Status push(const Sha256& id, bool* existed) override;
  Status pull(const Sha256& id, bool* existed) override;
  Status verify(const Sha256& id) override;
  Status remove(const Sha256& id) override;
  Result<RemoteSpeed> measure() override;

 private:
  RemoteLink(bool read_only, uint32_t drain_ms, EventSink events)
      : read_only_(read_only), drain_(drain_ms), events_(std::move(events)) {}
  Status check_fork() const;
  void upload_queued(const Sha256& id) noexcept BLEND_EXCLUDES(mutex_);
  Status upload(const Sha256& id, bool* existed);
  void wait_for_uploads() BLEND_EXCLUDES(mutex_);
  void tell_given_up(size_t n_chunks) const;
  // Writes what has come whole to the disk.
  Status keep(Arrival& arrival);
  void keep_later(const std::shared_ptr<Arrival>& arrival);
  Status fetch(const Sha256& id, std::shared_ptr<LookUps> look_ups);
  void read_ahead(const std::vector<Sha256>& ids, uint64_t hint, const Came& came);

  const ProcessMark process_;
  const bool read_only_;
  const std::chrono::milliseconds drain_;
  const EventSink events_;
  StoredChunks* disk_ = nullptr;
  std::atomic<uint64_t> hints_{0};  // number of the last hint
  mutable Mutex mutex_;
  CondVar uploaded_;
  // Queued or under way; true: it was changed since that began, and is uploaded again.
  std::unordered_map<Sha256, bool, Sha256Hash> uploads_ BLEND_GUARDED_BY(mutex_);
  bool closed_ BLEND_GUARDED_BY(mutex_) = false;
  std::unique_ptr<RemoteTier> tier_;
  Worker keeper_;  // writes to the disk what has come
  Worker ahead_;   // reads ahead for hints
};

}  // namespace blend
