// ChunkStore: where chunks live. One implementation now (LMDB); tiers and remotes come as others.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/cancel.h"
#include "store/chunk.h"
#include "store/evict/policy.h"
#include "store/evict/use_record.h"
#include "store/page_reader.h"

namespace blend {

struct StoreOptions {
  uint64_t quota_bytes = 16ull << 30;
  uint64_t queue_bytes = 256ull << 20;
  bool read_only = false;
  bool create = true;
  Codec codec = Codec::none;  // of records that do not name one
  ReadMode read_mode = ReadMode::best;
  Eviction eviction = Eviction::lru;
  uint64_t ttl_s = 0;               // 0: chunks do not expire
  uint64_t tenant_quota_bytes = 0;  // of every tenant but the empty one; 0: none
  uint64_t ram_bytes = 0;           // layers kept in host memory; 0: none
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
  uint64_t stored_bytes = 0;  // what the quota counts: after the codec, rounded up to pages
  uint64_t ram_hits = 0;      // of the hits
  UseTotals totals;           // of all processes
  uint64_t oldest_use_us = 0, newest_use_us = 0;  // of chunks that are not pinned; 0: none
  uint64_t ram_bytes = 0, ram_chunks = 0, ram_budget_bytes = 0;
  uint64_t prefetched = 0;   // chunks read ahead into memory
  uint64_t queue_bytes = 0;  // on their way to the disk
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
  // What became of the background put of `id`: OK when the chunk is on disk, its own error, or
  // NOT_FOUND (neither stored nor on its way). Waits until `deadline`, without one for ever.
  // `*pending`: it is still on its way, and the status says nothing.
  using Deadline = std::optional<std::chrono::steady_clock::time_point>;
  virtual Status wait(const Sha256& /*id*/, Deadline /*deadline*/, bool* /*pending*/) {
    return unsupported();
  }
  virtual Status remove(const Sha256& id) = 0;  // NOT_FOUND
  // In the order of ids, after waiting for the write-back queue. verify: reads and checks every
  // byte; `problem` is empty for a sound chunk. A non-zero return of fn stops with CALLBACK and the
  // value as detail. CORRUPT at the end if any chunk was damaged and verify was set.
  using Visit = std::function<int32_t(const ChunkMeta& meta, const std::string& problem)>;
  virtual Status for_each(bool verify, const Visit& fn) = 0;
  // Removes every chunk that for_each(verify) calls damaged, and makes the index of use anew. `fn`
  // is told of each.
  virtual Status repair(const Visit& /*fn*/, uint64_t* /*n_removed*/) { return unsupported(); }
  // A compact copy in the directory `path`; see copy_compact().
  virtual Status copy_to(const std::string& /*path*/) { return unsupported(); }
  virtual Result<StoreStat> stat() = 0;
  // The record of a chunk's use, hits that are not on disk yet included. NOT_FOUND.
  virtual Result<UseRecord> use(const Sha256& /*id*/) { return unsupported(); }
  // A pinned chunk is not evicted and does not expire. Waits for the chunk's own write. NOT_FOUND.
  virtual Status pin(const Sha256& /*id*/, bool /*pinned*/) { return unsupported(); }
  // Evicts, by the store's policy, what has expired and then until at most `target_bytes` are
  // stored. FULL: pinned or needed chunks are in the way; what could go is gone.
  virtual Status evict(uint64_t /*target_bytes*/, uint64_t* /*n_evicted*/) { return unsupported(); }
  // The chunks that coming prompts need, in that order: read ahead into memory as far as its budget
  // goes, and kept from eviction. Takes the place of the last hint. Does not wait.
  virtual Status hint(std::span<const Sha256> /*ids*/) { return unsupported(); }
  // INVALID_ARGUMENT: the empty tenant, whose quota is the store's. 0 bytes: the options' again.
  virtual Status set_tenant_quota(const TenantTag& /*tenant*/, uint64_t /*bytes*/) {
    return unsupported();
  }
  virtual Result<TenantUse> tenant(const TenantTag& /*tenant*/) { return unsupported(); }
  // Called by readers whose layer read gave CORRUPT: counts it and tells the event sink.
  virtual void report_damage(const Sha256& id, const Status& status) = 0;

 private:
  // What only a store that lasts can do.
  static Status unsupported() {
    return {BLEND_E_UNSUPPORTED, "this kind of store does not look after what it holds"};
  }
};

Result<std::shared_ptr<ChunkStore>> open_lmdb_store(const std::string& path,
                                                    const StoreOptions& options, EventSink events);

}  // namespace blend
