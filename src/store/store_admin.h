// StoreAdmin: administration of a persistent store and of its remote tier, and the figures of
// `blend store`. No fuse needs any of it.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "store/chunk/chunk.h"
#include "store/evict/use_record.h"
#include "store/read/page_reader.h"

namespace blend {

struct CodecStat {
  uint64_t n_chunks = 0;
  uint64_t bytes = 0;
  uint64_t stored_bytes = 0;
  bool operator==(const CodecStat&) const = default;
};

// Figures of the tier above the disk, since this process opened the store.
struct RemoteStat {
  bool configured = false;
  bool reachable = false;
  uint64_t hits = 0, misses = 0;  // look-ups that found a chunk there, and those that did not
  uint64_t late = 0;              // of the misses: the time of a fuse's look-ups was over
  uint64_t read_bytes = 0, written_bytes = 0;
  uint64_t written = 0;  // chunks put
  uint64_t existed = 0;  // chunks that were there already
  uint64_t dropped = 0;  // chunks not put or not fetched: no space, or no server
  uint64_t damaged = 0;  // chunks there that were damaged, or not whole
  uint64_t errors = 0;   // requests that failed
  uint64_t downs = 0;    // times that a server was given up for a while
  uint64_t queued = 0;   // chunks that are still to be put
  uint64_t arriving_bytes = 0;
  uint64_t look_up_p50_us = 0, look_up_p99_us = 0;
  uint64_t segment_p50_us = 0, segment_p99_us = 0;
  double bytes_per_s = 0;
};

struct StoreStat {
  uint64_t n_chunks = 0;
  uint64_t n_tokens = 0;
  uint64_t bytes = 0;
  uint64_t file_bytes = 0;
  uint64_t quota_bytes = 0;
  // By Codec: chunks, their bytes of K and V before encoding, and as stored.
  std::array<CodecStat, kCodecs> codecs{};
  ReadMode read_mode = ReadMode::mapped;  // in use: never `best`
  uint64_t hits = 0, misses = 0, damaged = 0, written = 0, write_errors = 0;
  uint64_t stored_bytes = 0;        // counted by the quota: after the codec, rounded up to pages
  uint64_t ram_hits = 0;            // of the hits
  UseTotals totals;                 // of all processes
  std::optional<TextTotals> texts;  // empty: not known, until the store is opened for writing
  uint64_t variant_hits = 0;        // of the hits
  uint64_t oldest_use_us = 0, newest_use_us = 0;  // of chunks that are not pinned; 0: none
  uint64_t ram_bytes = 0, ram_chunks = 0, ram_budget_bytes = 0;
  uint64_t prefetched = 0;   // chunks read ahead into memory
  uint64_t queue_bytes = 0;  // on their way to the disk
  RemoteStat remote;
};

class RemoteAdmin;

// Thread-safe. Every call first checks for fork (BLEND_E_FORKED).
class StoreAdmin {
 public:
  virtual ~StoreAdmin() = default;

  // ---- Background puts (ChunkStore::put_async())

  // Waits for all of them. The first error since the last flush.
  virtual Status flush() = 0;
  // Outcome of the background put of `id`: OK when the chunk is on disk, its own error, or
  // NOT_FOUND (neither stored nor queued). Waits until `deadline`; without one, for ever.
  // `*pending`: it is still queued, and the status says nothing.
  using Deadline = std::optional<std::chrono::steady_clock::time_point>;
  virtual Status wait(const Sha256& id, Deadline deadline, bool* pending) = 0;

  // ---- How chunks are rounded

  // For chunks of a model that are put from here on, by anyone, with a codec that chooses its
  // scales (rans): layer l has `codec_step` times steps[l], if there are as many as layers; none:
  // all layers alike. As long as the store is open: a reader need not know.
  virtual Status set_layer_steps(const Sha256& fingerprint, std::vector<float> steps) = 0;

  // ---- Looking at the chunks

  // In the order of ids, after waiting for the background puts. verify: reads and checks every
  // byte; `problem` is empty for a sound chunk. A non-zero return of fn stops with CALLBACK and the
  // value as detail. CORRUPT at the end if any chunk was damaged and verify was set.
  using Visit = std::function<int32_t(const ChunkMeta& meta, const std::string& problem)>;
  Status for_each(bool verify, const Visit& fn) {
    return for_each_used(verify, [&](const ChunkMeta& meta, const UseRecord*,
                                     const std::string& problem) { return fn(meta, problem); });
  }
  // With the result of use(), of the same snapshot; null: unknown.
  using VisitUsed = std::function<int32_t(const ChunkMeta& meta, const UseRecord* use,
                                          const std::string& problem)>;
  virtual Status for_each_used(bool verify, const VisitUsed& fn) = 0;
  // The record of a chunk's use, with the hits that are not on disk yet. NOT_FOUND.
  virtual Result<UseRecord> use(const Sha256& id) = 0;
  virtual Result<StoreStat> stat() = 0;

  // ---- Which chunks stay

  // NOT_FOUND, also where the chunk is not this tenant's.
  Status remove(const Sha256& id, const TenantTag& tenant) { return remove_of(id, &tenant); }
  Status remove(const Sha256& id) { return remove_of(id, nullptr); }  // of any tenant
  // A pinned chunk is not evicted and does not expire. Waits for the chunk's own write. NOT_FOUND.
  virtual Status pin(const Sha256& id, bool pinned) = 0;
  // Names a chunk; members that `name` does not set stay. Touches no rows; waits for the chunk's
  // own write. NOT_FOUND, also where the chunk is not this tenant's; CORRUPT. `*changed`: something
  // was written. Without a change it works on a read-only store.
  Status rename(const Sha256& id, const TenantTag& tenant, const ChunkName& name, bool* changed) {
    return rename_of(id, &tenant, name, changed);
  }
  Status rename(const Sha256& id, const ChunkName& name, bool* changed) {
    return rename_of(id, nullptr, name, changed);  // of any tenant
  }
  // Evicts expired chunks, then by the store's policy until at most `target_bytes` are stored.
  // FULL: pinned or hinted chunks are in the way; all others are gone.
  virtual Status evict(uint64_t target_bytes, uint64_t* n_evicted) = 0;
  // The chunks that coming prompts need, in that order: read ahead into memory as far as its budget
  // allows, and kept from eviction. Replaces the last hint. Does not wait.
  virtual Status hint(std::span<const Sha256> ids) = 0;
  // INVALID_ARGUMENT: the empty tenant, whose quota is the store's. 0 bytes: the options' again.
  virtual Status set_tenant_quota(const TenantTag& tenant, uint64_t bytes) = 0;
  virtual Result<TenantUse> tenant(const TenantTag& tenant) = 0;

  // ---- Repair and copies; export and import are in transfer.h

  // Removes every chunk that for_each(verify) finds damaged, and rebuilds the index of use. `fn` is
  // called for each.
  virtual Status repair(const Visit& fn, uint64_t* n_removed) = 0;
  // A compact copy in the directory `path`, which must not hold a store. Readers and writers go on
  // meanwhile. INVALID_ARGUMENT, IO, FULL.
  virtual Status copy_to(const std::string& path) = 0;

  // The tier above the disk; null: there is none.
  virtual RemoteAdmin* remote() = 0;

 private:
  virtual Status remove_of(const Sha256& id, const TenantTag* tenant) = 0;
  virtual Status rename_of(const Sha256& id, const TenantTag* tenant, const ChunkName& name,
                           bool* changed) = 0;
};

struct RemoteSpeed {
  double bytes_per_s = 0;  // > 0; all connections together
  double latency_s = 0;    // of a look-up
};

// What an operator does with the chunks of a store's remote tier (`blend store push`, `pull`,
// `verify --remote`, `rm --remote`). Thread-safe. Errors of the server are IO.
class RemoteAdmin {
 public:
  virtual ~RemoteAdmin() = default;
  virtual Status check() = 0;  // whether every server answers
  // All chunks there, as far as this store's seal key shows them. `problem`: a key without chunk.
  using Problem = std::function<void(const std::string& key, const Status& why)>;
  virtual Result<std::vector<Sha256>> list(const Problem& problem) = 0;
  // Each says in *existed when there was nothing to do. NOT_FOUND, CORRUPT.
  virtual Status push(const Sha256& id, bool* existed) = 0;
  virtual Status pull(const Sha256& id, bool* existed) = 0;
  virtual Status verify(const Sha256& id) = 0;  // reads every byte. NOT_FOUND, CORRUPT
  virtual Status remove(const Sha256& id) = 0;  // NOT_FOUND; the store's own chunk stays
  // Reads some chunks. NOT_FOUND: there is none that can be read.
  virtual Result<RemoteSpeed> measure() = 0;
};

// Replaces the data file of the store in `path` by a compact copy, in one rename: a crash leaves
// the old file or the new one. `*before`, `*after`: its bytes. BUSY: the store is open, in this
// process or another. NOT_FOUND, CORRUPT, IO, FULL.
Status compact_store(const std::string& path, uint64_t* before, uint64_t* after);

}  // namespace blend
