// WriteBack: the queue of records that are on their way to the disk (AttentionStore 3.2, the write
// buffer of the asynchronous save).
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/hash.h"
#include "base/late_errors.h"
#include "base/status.h"
#include "base/threads/guarded.h"
#include "store/chunk/chunk.h"

namespace blend {

using RecordMap = std::unordered_map<Sha256, std::shared_ptr<const ChunkRecord>, Sha256Hash>;

// Thread-safe. A few threads write: they begin in the order of arrival, and never write two records
// of one id at the same time. They start with the first push. Must not be destroyed in a forked
// child (the threads are not there): leak it.
class WriteBack {
 public:
  // Writes some records, no two of one id, and returns the status of each.
  using Batch = std::span<const std::shared_ptr<const ChunkRecord>>;
  using Write = std::function<void(Batch, std::span<Status>)>;

  using OnError = std::function<void(const Status&)>;  // called without locks held; must not throw

  struct Limits {
    uint64_t queue_bytes = 0;
    unsigned n_threads = 2;  // while one writes the other encodes, and joins its transaction
    // Bound of one call of Write, so that small records share a sync; a larger one goes
    // alone.
    size_t batch_records = kMostRecords;
    uint64_t batch_bytes = 8ull << 20;
  };
  static constexpr size_t kMostRecords = 16;

  WriteBack(const Limits& limits, Write write, OnError on_error);
  ~WriteBack();  // writes what is queued
  WriteBack(const WriteBack&) = delete;
  WriteBack& operator=(const WriteBack&) = delete;

  // Blocks while `record` would take the queue past its bound; an empty queue takes a record of any
  // size. Replaces a queued record of the same id.
  Status push(std::shared_ptr<const ChunkRecord> record);
  // Waits for every record pushed before; returns the first error since the last flush.
  Status flush();
  // Waits like flush(), and leaves the error to it.
  void drain();
  std::shared_ptr<const ChunkRecord> find(const Sha256& id) const;  // null: not pending
  // Outcome of the last record pushed under `id`; waits until `deadline`, without one for ever.
  // Empty: it is still queued or being written. OK: it was written, cancelled or never pushed, or
  // its error is forgotten because LateErrors::kMost others failed since.
  std::optional<Status> outcome(const Sha256& id,
                                std::optional<std::chrono::steady_clock::time_point> deadline);
  RecordMap pending() const;
  // Takes a record out of the queue, or waits until its write under way is done. True if it was
  // dropped before it was written.
  bool cancel(const Sha256& id);
  uint64_t bytes() const;

 private:
  void run();
  struct InFlight {
    std::shared_ptr<const ChunkRecord> record;
    uint64_t place = 0;  // in the order of arrival
  };
  Status start_threads() BLEND_REQUIRES(mutex_);
  struct Taken {
    std::array<std::shared_ptr<const ChunkRecord>, kMostRecords> records;
    size_t n = 0;
    Batch batch() const { return {records.data(), n}; }
  };
  Taken take() BLEND_REQUIRES(mutex_);
  // Lets go of the mutex while it writes.
  void write(Batch batch) BLEND_REQUIRES(mutex_);
  const InFlight* in_flight(const Sha256& id) const BLEND_REQUIRES(mutex_);
  bool has_work() const BLEND_REQUIRES(mutex_) {
    return !order_.empty() && in_flight(order_.front()) == nullptr;
  }
  // Those pushed up to now. `lock` holds mutex_.
  void wait_for_all(MutexLock& lock) BLEND_REQUIRES(mutex_);
  static uint64_t size_of(const ChunkRecord& record) {
    return record.data.bytes() + record.meta.tokens.size() * sizeof(int32_t);
  }

  const Limits limits_;
  const Write write_;
  const OnError on_error_;

  mutable Mutex mutex_;
  CondVar work_;   // something was queued, or the end
  CondVar space_;  // something was written or cancelled
  // An id whose record is not in queued_ any more was cancelled.
  std::deque<Sha256> order_ BLEND_GUARDED_BY(mutex_);
  RecordMap queued_ BLEND_GUARDED_BY(mutex_);
  std::vector<InFlight> in_flight_
      BLEND_GUARDED_BY(mutex_);                    // with room for a batch a thread from the start
  uint64_t bytes_ BLEND_GUARDED_BY(mutex_) = 0;    // of queued_ and in_flight_
  uint64_t n_taken_ BLEND_GUARDED_BY(mutex_) = 0;  // records that have left order_
  LateErrors errors_ BLEND_GUARDED_BY(mutex_);
  bool stop_ BLEND_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_ BLEND_GUARDED_BY(mutex_);
};

}  // namespace blend
