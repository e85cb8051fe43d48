// Catalog: the chunks of a store by their ids: look-ups in snapshots, lists, names.
#pragma once

#include <memory>

#include "store/chunk/stored_chunks.h"
#include "store/chunk_store.h"
#include "store/lmdb/retention/retention.h"
#include "store/lmdb/snapshot/layer_reads.h"
#include "store/lmdb/store_common.h"
#include "store/queue/write_back.h"
#include "store/store_admin.h"

namespace blend {

// What for_each_used() says of a description under a key that cannot be an id.
inline constexpr char kNoChunkId[] = "a description has a key that is not a chunk id";

// Thread-safe: what changes is in LMDB's transactions. `common` and `retention` must outlive it.
class Catalog {
 public:
  Catalog(StoreCommon& common, Retention& retention, LayerReads reads);
  ~Catalog();
  Catalog(const Catalog&) = delete;
  Catalog& operator=(const Catalog&) = delete;

  // `pending`: the write-back queue's records, taken before. The catalog must outlive it.
  Result<std::unique_ptr<StoreSnapshot>> snapshot(RecordMap pending);
  // Whether the chunk is on disk; a damaged one counts as missing, to be put again.
  Result<bool> contains(const Sha256& id);
  // An id binds its tenant, so the answer stays true. False: not theirs, or not there.
  Result<bool> is_of(const Sha256& id, const TenantTag& tenant);
  // As StoreAdmin says, of the chunks on disk.
  Status for_each_used(bool verify, const StoreAdmin::VisitUsed& fn);
  // tenant: null, of any.
  Status rename(const Sha256& id, const TenantTag* tenant, const ChunkName& name, bool* changed);
  // As StoredChunks says.
  Result<std::unique_ptr<StoredChunk>> stored(const Sha256& id);
  // What the file says.
  Status fill(StoreStat& stat);

 private:
  StoreCommon& common_;
  Retention& retention_;
  LayerReads reads_;
};

}  // namespace blend
