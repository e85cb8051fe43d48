// Store: a persistent chunk store, and its options. One implementation now (lmdb/).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/cancel.h"
#include "store/chunk_store.h"
#include "store/evict/policy.h"
#include "store/host_memory.h"
#include "store/notes.h"
#include "store/remote_shelf.h"
#include "store/stored_chunks.h"
#include "store/upkeep.h"

namespace blend {

inline constexpr uint64_t kUsualVariants = 16;
inline constexpr uint64_t kAllVariants = ~uint64_t{0};  // no bound

struct StoreOptions {
  uint64_t quota_bytes = 16ull << 30;
  uint64_t queue_bytes = 256ull << 20;
  bool read_only = false;
  bool create = true;
  bool group = false;         // new files are open to the owner's group
  Codec codec = Codec::none;  // of records that do not name one
  double codec_step = 1;      // EncodeOptions::step
  ReadMode read_mode = ReadMode::best;
  Eviction eviction = Eviction::lru;
  uint64_t ttl_s = 0;                       // 0: chunks do not expire
  uint64_t tenant_quota_bytes = 0;          // of every tenant but the empty one; 0: none
  uint64_t most_variants = kUsualVariants;  // of one text, besides its plain record
  uint64_t ram_bytes = 0;                   // layers kept in host memory; 0: none
  HostMemory host_memory;                   // for them, where a device reads them directly
  // Called for each durable put, but not for put_stored(). On any thread, until the store is
  // destroyed; throws nothing but bad_alloc.
  std::function<void(const Sha256& id)> on_put;
};

// Thread-safe.
class Store : public ChunkStore, public StoreUpkeep, public StoredChunks, public StoreNotes {
 public:
  // The tier above the disk; null: there is none.
  virtual RemoteShelf* remote() { return nullptr; }
};

// In the directory `path`. `events` is called on any thread until the store is destroyed.
Result<std::shared_ptr<Store>> open_lmdb_store(const std::string& path, const StoreOptions& options,
                                               EventSink events);

// Replaces the data file of the store in `path` by a compact copy, in one rename: a crash leaves
// the old file or the new one. `*before`, `*after`: its bytes. BUSY: the store is open, in this
// process or another. NOT_FOUND, CORRUPT, IO, FULL.
Status compact_lmdb_store(const std::string& path, uint64_t* before, uint64_t* after);

}  // namespace blend
