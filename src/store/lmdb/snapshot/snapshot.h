// LmdbSnapshot: a read transaction of the store, and the chunk sources that read from it.
#pragma once

#include <memory>

#include "base/threads/guarded.h"
#include "store/chunk_store.h"
#include "store/lmdb/retention/retention.h"
#include "store/lmdb/snapshot/layer_reads.h"
#include "store/lmdb/store_common.h"
#include "store/lmdb/transaction.h"
#include "store/queue/write_back.h"

namespace blend {

// See StoreSnapshot.
class LmdbSnapshot final : public StoreSnapshot {
 public:
  // The first three must outlive it. `pending`: the write-back queue's records before the
  // transaction began.
  LmdbSnapshot(StoreCommon& common, Retention& retention, const LayerReads& reads, Txn txn,
               MapView view, RecordMap pending)
      : common_(common),
        retention_(retention),
        reads_(reads),
        pending_(std::move(pending)),
        txn_(std::move(txn)),
        view_(view) {}

  Result<bool> holds(const Sha256& id) override;

 private:
  Result<std::unique_ptr<ChunkSource>> open_of(const Sha256& id, const TenantTag* tenant) override;

  StoreCommon& common_;
  Retention& retention_;
  const LayerReads& reads_;
  const RecordMap pending_;
  const Txn txn_;
  const MapView view_;
  Mutex mutex_;  // LMDB's transaction, used by open() and the sources
};

}  // namespace blend
