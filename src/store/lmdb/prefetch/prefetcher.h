// Prefetcher: the chunks that coming prompts need are kept, and read ahead into host memory
// (AttentionStore 3.3).
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "base/threads/guarded.h"
#include "store/lmdb/retention/retention.h"
#include "store/lmdb/store_common.h"
#include "store/options.h"
#include "store/queue/worker.h"

namespace blend {

// Thread-safe. Its parts must outlive it, and the worker must have stopped before it is destroyed.
class Prefetcher {
 public:
  Prefetcher(StoreCommon& common, Retention& retention, Worker& worker,
             const StoreOptions& options);
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // As StoreAdmin says.
  Status hint(std::span<const Sha256> ids);
  uint64_t n_prefetched() const { return prefetched_.load(); }  // chunks read into memory

 private:
  void read_ahead(const std::vector<Sha256>& ids, uint64_t hint);
  Status read_into_ram(const Sha256& id, uint64_t hint);

  StoreCommon& common_;
  Retention& retention_;
  Worker& worker_;
  const Eviction eviction_;
  const uint64_t quota_bytes_;
  Mutex mutex_;                          // the policy of an older hint must not replace a newer one
  std::atomic<uint64_t> hints_{0};       // number of the last hint; reading for older ones stops
  std::atomic<uint64_t> prefetched_{0};  // chunks
};

}  // namespace blend
