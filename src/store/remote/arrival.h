// Arrival: a chunk on its way from the remote tier: its stream in host memory, filled segment by
// segment, each usable as soon as it is there and checked.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "base/buffer.h"
#include "base/threads/guarded.h"
#include "store/remote/record.h"

namespace blend {

// A share of a total number of bytes, as long as it lives. Move-only.
class RoomFor {
 public:
  RoomFor(std::shared_ptr<std::atomic<uint64_t>> total, uint64_t bytes)
      : total_(std::move(total)), bytes_(bytes), all_(total_->fetch_add(bytes) + bytes) {}
  ~RoomFor() {
    if (total_ != nullptr) total_->fetch_sub(bytes_);
  }
  RoomFor(RoomFor&&) = default;
  RoomFor& operator=(RoomFor&&) = delete;
  RoomFor(const RoomFor&) = delete;
  RoomFor& operator=(const RoomFor&) = delete;
  uint64_t all() const { return all_; }  // the total when it was taken, with it

 private:
  std::shared_ptr<std::atomic<uint64_t>> total_;
  const uint64_t bytes_;
  const uint64_t all_;
};

// Thread-safe.
class Arrival {
 public:
  Arrival(RemoteRecord record, AlignedBuffer stream, RoomFor room);
  Arrival(const Arrival&) = delete;
  Arrival& operator=(const Arrival&) = delete;

  const RemoteRecord& record() const { return record_; }
  const StoredLayout& layout() const { return record_.layout; }
  // [stream_bytes()]: what wait() has granted may be read.
  const std::shared_ptr<const AlignedBuffer>& stream() const { return shared_; }
  std::span<std::byte> segment(uint32_t index);

  // True once: the caller is to begin the transfer.
  bool begin() { return !begun_.exchange(true); }
  bool begun() const { return begun_.load(); }

  // What became of a segment. `complete` is called when it was the last one, before anybody who
  // waits for it goes on.
  void arrived(uint32_t index, const std::function<void()>& complete);
  void fail(const Status& why);  // the first counts
  bool failed() const { return failed_.load(std::memory_order_relaxed); }

  // Waits for bytes of the stream. Its error if the transfer failed; when no segment comes for
  // `patience` it fails for that, and *gave_up.
  Status wait(uint64_t offset, uint64_t bytes, std::chrono::milliseconds patience, bool* gave_up);

 private:
  const RemoteRecord record_;
  const std::shared_ptr<const AlignedBuffer> shared_;
  const RoomFor room_;
  std::atomic<bool> begun_{false};
  std::atomic<bool> failed_{false};
  Mutex mutex_;
  CondVar changed_;
  std::vector<uint8_t> here_ BLEND_GUARDED_BY(mutex_);  // [n_segments]
  uint32_t n_come_ BLEND_GUARDED_BY(mutex_) = 0;        // of which the bytes are in place
  uint32_t n_here_ BLEND_GUARDED_BY(mutex_) = 0;        // of here_
  Status why_ BLEND_GUARDED_BY(mutex_);
};

}  // namespace blend
