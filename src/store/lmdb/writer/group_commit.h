// GroupCommit: puts of several threads that wait for the store's one writer share a transaction,
// and with it one sync (group commit).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "base/threads/guarded.h"
#include "store/lmdb/catalog/manifest.h"

namespace blend {

// Thread-safe; take() to finish() belong to the transaction that run() calls.
class GroupCommit {
 public:
  class Put {
   public:
    // Both must outlive it.
    Put(const EncodedChunk& what, const TenantTag& whose) : chunk(&what), tenant(&whose) {}
    const EncodedChunk* const chunk;
    const TenantTag* const tenant;
    const Status& status() const { return status_; }  // when it is settled

   private:
    friend class GroupCommit;
    Put* next = nullptr;
    bool alone = false;  // shares no transaction
    bool done = false;
    Status status_;
  };
  // Bound of one transaction, so that the first put does not wait long for the last; a single one
  // may be larger.
  static constexpr size_t kMostPuts = 16;
  static constexpr uint64_t kMostBytes = 64ull << 20;

  // most_bytes: the bound of a transaction, if it is below kMostBytes. Chunks that share one must
  // not evict each other.
  explicit GroupCommit(uint64_t most_bytes) : most_bytes_(std::min(most_bytes, kMostBytes)) {}

  // Blocks until `puts`, at most kMostPuts, are settled. One of the threads that wait here runs
  // `transaction` until its own puts are settled; the transaction takes other threads' puts too. An
  // error that it returns is the status of every put that it took and has not settled.
  void run(std::span<Put* const> puts, const std::function<Status()>& transaction);

  // The next put, in the order of arrival, those that came after the transaction began included.
  // Null: the transaction has enough, or no put waits.
  Put* take();
  // Returns the put that was taken last to the head of the queue: it is not in the transaction.
  void give_back();
  // After the commit: all that were taken are on disk.
  void finish();
  // Nothing was committed. A put that was alone has this status; several are queued again, each for
  // a transaction of its own, so that one put's error does not become the others'.
  void fail(const Status& status);

 private:
  void settle(const Status& status) BLEND_REQUIRES(mutex_);
  // Those of them that wait; at most kMostPuts.
  void take_these(std::span<Put* const> puts) BLEND_REQUIRES(mutex_);
  void put_back(Put* put) BLEND_REQUIRES(mutex_) {
    put->next = first_;
    first_ = put;
    if (last_ == nullptr) last_ = put;
  }

  const uint64_t most_bytes_;
  Mutex mutex_;
  CondVar changed_;
  Put* first_ BLEND_GUARDED_BY(mutex_) = nullptr;  // a list, so that waiting needs no memory
  Put* last_ BLEND_GUARDED_BY(mutex_) = nullptr;
  std::array<Put*, kMostPuts> taken_ BLEND_GUARDED_BY(mutex_){};
  size_t n_taken_ BLEND_GUARDED_BY(mutex_) = 0;
  uint64_t bytes_ BLEND_GUARDED_BY(mutex_) = 0;  // of taken_
  bool busy_ BLEND_GUARDED_BY(mutex_) = false;   // a thread runs a transaction
};

}  // namespace blend
