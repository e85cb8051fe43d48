// ChunkStore: where chunks live. One implementation now (LMDB); tiers and remotes come as others.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/cancel.h"
#include "store/chunk.h"
#include "store/page_reader.h"

namespace blend {

struct StoreOptions {
  uint64_t quota_bytes = 16ull << 30;
  uint64_t queue_bytes = 256ull << 20;
  bool read_only = false;
  bool create = true;
  Codec codec = Codec::none;  // of records that do not name one
  ReadMode read_mode = ReadMode::best;
};

struct CodecStat {
  uint64_t n_chunks = 0;
  uint64_t bytes = 0;
  uint64_t stored_bytes = 0;
  bool operator==(const CodecStat&) const = default;
};

struct StoreStat {
  uint64_t n_chunks = 0;
  uint64_t n_tokens = 0;
  uint64_t bytes = 0;
  uint64_t file_bytes = 0;
  uint64_t quota_bytes = 0;
  // By Codec: chunks, their bytes of K and V before encoding, and as stored.
  std::array<CodecStat, 4> codecs{};
  ReadMode read_mode = ReadMode::mapped;  // in use: never `best`
  uint64_t hits = 0, misses = 0, damaged = 0, written = 0, write_errors = 0;
};

// A consistent view of the store. What it returned stays readable while it lives, whatever others
// put or remove. Used by one thread at a time; may move between threads; must not outlive the
// store's object.
class StoreSnapshot {
 public:
  virtual ~StoreSnapshot() = default;
  // NOT_FOUND: no such chunk (counted as a miss). CORRUPT: its description is damaged (counted, an
  // event; treat as a miss). A chunk still in the write-back queue is found too.
  // Sources must not outlive the snapshot.
  virtual Result<std::unique_ptr<ChunkSource>> open(const Sha256& id) = 0;
};

// Thread-safe. Every call first checks for fork (BLEND_E_FORKED).
class ChunkStore {
 public:
  virtual ~ChunkStore() = default;  // waits for the write-back queue

  virtual Result<std::unique_ptr<StoreSnapshot>> snapshot() = 0;
  // Without opening a snapshot or counting hits: is it there (queue included)?
  virtual Result<bool> contains(const Sha256& id) = 0;
  // Durable when it returns (LMDB's commit with fsync). A chunk of the same id is replaced.
  virtual Status put(const ChunkRecord& record) = 0;
  // Queued; blocks while the queue is full. Errors go to the event sink and to flush().
  virtual Status put_async(std::shared_ptr<const ChunkRecord> record) = 0;
  virtual Status flush() = 0;
  virtual Status remove(const Sha256& id) = 0;  // NOT_FOUND
  // In the order of ids, after waiting for the write-back queue. verify: reads and checks every
  // byte; `problem` is empty for a sound chunk. A non-zero return of fn stops with CALLBACK and the
  // value as detail. CORRUPT at the end if any chunk was damaged and verify was set.
  using Visit = std::function<int32_t(const ChunkMeta& meta, const std::string& problem)>;
  virtual Status for_each(bool verify, const Visit& fn) = 0;
  virtual Result<StoreStat> stat() = 0;
  // Called by readers whose layer read gave CORRUPT: counts it and tells the event sink.
  virtual void report_damage(const Sha256& id, const Status& status) = 0;
};

Result<std::shared_ptr<ChunkStore>> open_lmdb_store(const std::string& path,
                                                    const StoreOptions& options, EventSink events);

}  // namespace blend
