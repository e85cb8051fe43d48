// ServerLink: the link between a store's disk and a remote tier. Its threads upload chunks that
// were put, write to the disk what has come, and read ahead for hints.
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
#include "store/remote/remote_link.h"
#include "store/remote/remote_tier.h"
#include "store/store_admin.h"

namespace blend {

class ServerLink final : public RemoteLink {
 public:
  static Result<std::unique_ptr<ServerLink>> create(const RemoteOptions& remote, bool read_only,
                                                    Log log);
  ~ServerLink() override;
  ServerLink(const ServerLink&) = delete;
  ServerLink& operator=(const ServerLink&) = delete;

  // RemoteLink
  void serve(StoredChunks& disk) override { disk_ = &disk; }
  std::unique_ptr<StoreSnapshot> above(std::unique_ptr<StoreSnapshot> below) override;
  Status bring(const Sha256& id) override { return fetch(id, nullptr); }
  void upload_later(const Sha256& id) noexcept override BLEND_EXCLUDES(mutex_);
  void flush() override;
  uint64_t begin_hint() override { return hints_.fetch_add(1) + 1; }
  void hint(uint64_t number, std::span<const Sha256> ids, Came came) override;
  void fill(RemoteStat& stat) const override BLEND_EXCLUDES(mutex_);
  void close() override BLEND_EXCLUDES(mutex_);

  // RemoteAdmin
  Status check() override;
  Result<std::vector<Sha256>> list(const Problem& problem) override;
  Status push(const Sha256& id, bool* existed) override;
  Status pull(const Sha256& id, bool* existed) override;
  Status verify(const Sha256& id) override;
  Status remove(const Sha256& id) override;
  Result<RemoteSpeed> measure() override;

 private:
  ServerLink(bool read_only, uint32_t drain_ms, Log log)
      : read_only_(read_only), drain_(drain_ms), log_(std::move(log)) {}
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
  const Log log_;
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
