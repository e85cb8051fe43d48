// Writer: puts of a store: encode, wait for a transaction, make room, write, commit.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/threads/guarded.h"
#include "store/chunk/stored_chunks.h"
#include "store/lmdb/retention/retention.h"
#include "store/lmdb/store_common.h"
#include "store/lmdb/writer/chunk_writer.h"
#include "store/lmdb/writer/group_commit.h"
#include "store/options.h"

namespace blend {

// Map size for a store with this quota and chunks of this footprint.
uint64_t map_bytes_for(uint64_t quota, uint64_t chunk);

// Thread-safe. `common` and `retention` must outlive it.
class Writer {
 public:
  struct Record {
    const ChunkRecord* record = nullptr;
    std::shared_ptr<const ChunkRecord> shared;  // the same, if memory may keep it
  };

  // Called for each durable put, but not for put_stored(). On any thread; throws nothing but
  // bad_alloc.
  using OnPut = std::function<void(const Sha256& id)>;

  Writer(StoreCommon& common, Retention& retention, const StoreOptions& options, OnPut on_put);
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // As StoreAdmin says.
  Status set_layer_steps(const Sha256& fingerprint, std::vector<float> steps);

  // A record that check_record() accepted. Durable when it returns.
  Status write(const ChunkRecord& record);
  // The same for several at once; returns the status of each.
  void write_all(std::span<const Record> records, std::span<Status> statuses);
  // As StoredChunks says.
  Status put_stored(const StoredLayout& layout, const std::shared_ptr<const AlignedBuffer>& stream);
  // was_queued: the write-back queue had it, so that it need not be on disk. NOT_FOUND.
  Status remove(const Sha256& id, bool was_queued);

 private:
  // Null: all layers alike.
  std::shared_ptr<const std::vector<float>> layer_steps_of(const Sha256& fingerprint) const
      BLEND_EXCLUDES(mutex_);
  // Settles the puts.
  void commit_in_groups(std::span<GroupCommit::Put* const> puts);
  // The status of a put whose transaction gave `status`.
  Status conclude(const Status& status, const Record& record, const Manifest& manifest);
  // One transaction for the next puts in the queue.
  Status put_waiting();
  Result<Room> put_one(ChunkWriter& writer, const EncodedChunk& chunk, const TenantTag& tenant);
  void keep_in_ram(const std::shared_ptr<const ChunkRecord>& record, const Manifest& manifest);

  StoreCommon& common_;
  Retention& retention_;
  const uint64_t quota_bytes_;
  const Codec codec_;  // of records that do not name one
  const double codec_step_;
  const OnPut on_put_;
  mutable Mutex mutex_;
  // By model.
  std::map<Sha256, std::shared_ptr<const std::vector<float>>> layer_steps_ BLEND_GUARDED_BY(mutex_);
  GroupCommit group_commit_;
};

}  // namespace blend
