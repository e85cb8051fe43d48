// PutTurns: puts of several threads that wait for the store's one writer share a transaction, and
// with it one sync (group commit).
#pragma once

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>

#include "store/manifest.h"

namespace blend {

// Thread-safe; take() to finish() belong to the transaction that run() calls.
class PutTurns {
 public:
  class Put {
   public:
    // Both must outlive it.
    Put(const EncodedChunk& what, const TenantTag& whose) : chunk(&what), tenant(&whose) {}
    const EncodedChunk* const chunk;
    const TenantTag* const tenant;
    const Status& status() const { return status_; }  // when it is settled

   private:
    friend class PutTurns;
    Put* next = nullptr;
    bool alone = false;  // shares its transaction with nobody
    bool done = false;
    Status status_;
  };
  // What one transaction takes at most, so that the first put does not wait long for the last; a
  // single one may be larger.
  static constexpr size_t kMostPuts = 16;
  static constexpr uint64_t kMostBytes = 64ull << 20;

  // most_bytes: if that is less. Chunks that share a transaction must not push out one another.
  explicit PutTurns(uint64_t most_bytes) : most_bytes_(std::min(most_bytes, kMostBytes)) {}

  // Waits until `puts`, at most kMostPuts, are settled. One of those that wait runs `transaction`,
  // for itself and for whom it takes, as often as it needs; an error settles all that it took and
  // left so.
  void run(std::span<Put* const> puts, const std::function<Status()>& transaction);

  // The next put, in the order of arrival, also of those that have come since the transaction
  // began. Null: it has enough, or nobody waits.
  Put* take();
  // The one that was taken last has not been put and goes first next time.
  void give_back();
  // After the commit: all that were taken are on disk.
  void finish();
  // The transaction came to nothing. If it was for one put, that is its status; otherwise each of
  // them is tried alone, so that what one met does not become the others'.
  void fail(const Status& status);

 private:
  // mutex_ held
  void settle(const Status& status);
  void take_these(std::span<Put* const> puts);  // those of them that wait; at most kMostPuts
  void put_back(Put* put) {
    put->next = first_;
    first_ = put;
    if (last_ == nullptr) last_ = put;
  }

  const uint64_t most_bytes_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Put* first_ = nullptr;  // a list, so that waiting needs no memory
  Put* last_ = nullptr;
  std::array<Put*, kMostPuts> taken_{};
  size_t n_taken_ = 0;
  uint64_t bytes_ = 0;  // of taken_
  bool busy_ = false;   // somebody runs a transaction
};

}  // namespace blend
