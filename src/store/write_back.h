// WriteBack: the queue of records that are on their way to the disk (AttentionStore 3.2, the write
// buffer of the asynchronous save).
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>

#include "base/status.h"
#include "store/chunk.h"

namespace blend {

struct Sha256Hash {
  size_t operator()(const Sha256& id) const {  // ids are hashes already
    size_t h = 0;
    std::memcpy(&h, id.data(), sizeof h);
    return h;
  }
};
using RecordMap = std::unordered_map<Sha256, std::shared_ptr<const ChunkRecord>, Sha256Hash>;

// Thread-safe. One thread writes, in the order of arrival; it starts with the first push. Must not
// be destroyed in a forked child (the thread is not there): leak it.
class WriteBack {
 public:
  using Write = std::function<Status(const std::shared_ptr<const ChunkRecord>&)>;
  using OnError = std::function<void(const Status&)>;  // called without locks held

  WriteBack(uint64_t queue_bytes, Write write, OnError on_error);
  ~WriteBack();  // writes what is queued
  WriteBack(const WriteBack&) = delete;
  WriteBack& operator=(const WriteBack&) = delete;

  // Blocks while the queue holds more than its bound with `record`; a single record of any size
  // fits an empty queue. A record of an id that is queued takes its place.
  Status push(std::shared_ptr<const ChunkRecord> record);
  // Waits for every record pushed before; returns the first error since the last flush.
  Status flush();
  // The same, leaving the error for flush().
  void drain();
  std::shared_ptr<const ChunkRecord> find(const Sha256& id) const;  // null: not pending
  // What became of the last record pushed under `id`, waiting for it until `deadline`. Nothing: it
  // is still on its way. OK: it was written, or cancelled, or never pushed. The errors of the last
  // kOutcomes records that failed are remembered.
  static constexpr size_t kOutcomes = 1024;
  std::optional<Status> outcome(const Sha256& id,
                                std::optional<std::chrono::steady_clock::time_point> deadline);
  RecordMap pending() const;
  // Takes a record out of the queue, or waits until its write under way is done. True if it was
  // dropped before it was written.
  bool cancel(const Sha256& id);
  uint64_t bytes() const;

 private:
  void run();
  void remember(const Sha256& id, const Status& status);  // mutex_ held
  static uint64_t size_of(const ChunkRecord& record) {
    return record.data.bytes() + record.meta.tokens.size() * sizeof(int32_t);
  }

  const uint64_t queue_bytes_;
  const Write write_;
  const OnError on_error_;

  mutable std::mutex mutex_;
  std::condition_variable work_;   // something was queued, or the end
  std::condition_variable space_;  // something was written or cancelled
  // An id whose record is not in queued_ any more was cancelled.
  std::deque<Sha256> order_;
  RecordMap queued_;
  std::shared_ptr<const ChunkRecord> in_flight_;
  uint64_t bytes_ = 0;   // of queued_ and in_flight_
  uint64_t pushed_ = 0;  // places ever taken in order_
  uint64_t done_ = 0;    // of them finished
  Status first_error_;
  std::unordered_map<Sha256, Status, Sha256Hash> failed_;
  std::deque<Sha256> failed_order_;  // oldest first; may name ids that are not in failed_ any more
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace blend
