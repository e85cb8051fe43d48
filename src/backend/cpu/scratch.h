// ScratchPool: buffers that operations borrow, so that the hot path does not allocate.
#pragma once

#include <bit>
#include <cstddef>
#include <utility>
#include <vector>

#include "backend/cpu/memory.h"
#include "base/buffer.h"
#include "base/threads/guarded.h"

namespace blend::cpu {

// Thread-safe. Every operation takes its own buffer, so concurrent callers never share one. Must
// outlive its leases.
class ScratchPool {
 public:
  // Returns the buffer on destruction. Used by one operation.
  class Lease {
   public:
    Lease(ScratchPool* pool, AlignedBuffer buffer) : pool_(pool), buffer_(std::move(buffer)) {}
    Lease(Lease&& other) noexcept
        : pool_(std::exchange(other.pool_, nullptr)), buffer_(std::move(other.buffer_)) {}
    Lease& operator=(Lease&& other) noexcept {
      std::swap(pool_, other.pool_);
      std::swap(buffer_, other.buffer_);
      return *this;
    }
    ~Lease() {
      if (pool_ != nullptr) pool_->give_back(std::move(buffer_));
    }
    std::byte* data() const { return buffer_.data(); }

   private:
    ScratchPool* pool_;
    AlignedBuffer buffer_;
  };

  // At least `bytes`, page-aligned, not initialised.
  Result<Lease> take(size_t bytes) {
    bytes = std::bit_ceil(bytes < kSmallest ? kSmallest : bytes);
    {
      const MutexLock lock(mutex_);
      for (AlignedBuffer& b : free_) {
        if (b.bytes() < bytes) continue;
        Lease lease(this, std::move(b));
        std::swap(b, free_.back());
        free_.pop_back();
        return lease;
      }
    }
    BLEND_ASSIGN(AlignedBuffer fresh, allocate_tensor(bytes));
    return Lease(this, std::move(fresh));
  }

 private:
  static constexpr size_t kSmallest = 64 << 10;
  static constexpr size_t kKept = 4;  // usually more than concurrent operations

  void give_back(AlignedBuffer buffer) noexcept {
    const MutexLock lock(mutex_);
    if (free_.capacity() < kKept) return;
    if (free_.size() < kKept) {
      free_.push_back(std::move(buffer));
      return;
    }
    for (AlignedBuffer& b : free_) {
      if (b.bytes() < buffer.bytes()) std::swap(b, buffer);
    }
  }

 public:
  ScratchPool() { free_.reserve(kKept); }

 private:
  Mutex mutex_;
  std::vector<AlignedBuffer> free_ BLEND_GUARDED_BY(mutex_);
};

}  // namespace blend::cpu
