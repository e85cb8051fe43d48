// Stager: copies host memory to the device, without ever waiting for the whole device.
//
// Small arrays (positions, tokens) go through pinned pieces in the compute stream's own order, read
// by a kernel: a copy would queue after megabytes of stored rows, which use the same copy engine.
// Arrays that a fuse needs again at every layer (positions, masks) are copied once.
// Stored rows go by the copy stream into a ring of device buffers, so that the rows of later layers
// are copied while earlier layers are computed:
//
//   copy stream      wait consumed[s] | rows -> slot s | record arrived[s] | next slot ...
//   compute stream   ... | wait arrived[s] | kernels that read slot s | record consumed[s] | ...
//
// Rows in pinned memory (Backend::allocate_host) are read by the device itself, and must not
// change until a fence of the copy stream is reached; others are first copied to pinned pieces.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "backend/cuda/device.h"
#include "backend/device_memory.h"
#include "backend/stored_run.h"
#include "base/threads/guarded.h"
#include "base/threads/thread_pool.h"

namespace blend::cuda {

// Pieces of pinned memory, used in rotation: one is written again when the device has read it.
// Thread-safe.
class PinnedPieces {
 public:
  static Result<std::unique_ptr<PinnedPieces>> create(Device& device, ThreadPool& pool, size_t n,
                                                      size_t piece_bytes, bool by_kernel);
  // Issues a copy to `stream`; `from` may be written again when it returns.
  Status copy(void* to, const void* from, size_t bytes, cudaStream_t stream);

 private:
  PinnedPieces(ThreadPool& pool, size_t n, size_t piece_bytes, bool by_kernel)
      : pool_(pool), piece_bytes_(piece_bytes), by_kernel_(by_kernel), free_(n) {}

  ThreadPool& pool_;
  const size_t piece_bytes_;
  const bool by_kernel_;  // else by a copy engine
  Pinned memory_;
  Mutex mutex_;
  size_t next_ BLEND_GUARDED_BY(mutex_) = 0;
  // Recorded after the last copy of a piece.
  std::vector<UniqueEvent> free_ BLEND_GUARDED_BY(mutex_);
};

// Thread-safe. Works with the calling thread's device.
class Stager {
 public:
  static Result<std::unique_ptr<Stager>> create(Device& device, ThreadPool& pool);

  // `n` elements in memory of the compute stream.
  template <typename T>
  Result<Memory> upload(const T* from, size_t n) {
    return upload_bytes(from, n * sizeof(T));
  }
  // The same for arrays that only kernels read: one with the same bytes that was copied lately
  // shares its memory.
  class Shared {
   public:
    Shared() = default;
    explicit Shared(std::shared_ptr<const Memory> memory) : memory_(std::move(memory)) {}
    template <typename T>
    const T* as() const {
      return memory_ == nullptr ? nullptr : memory_->as<const T>();
    }

   private:
    std::shared_ptr<const Memory> memory_;  // freed after everything that was issued with it
  };
  template <typename T>
  Result<Shared> share(const T* from, size_t n) {
    return share_bytes(from, n * sizeof(T));
  }
  // Copies a few bytes to existing memory, in the order of the compute stream.
  Status update(void* to, const void* from, size_t bytes) {
    return small_->copy(to, from, bytes, device_.compute());
  }
  // Copies bytes to memory that the compute stream uses, in its order; large ones at full speed.
  Status copy(void* to, const void* from, size_t bytes) {
    return large_->copy(to, from, bytes, device_.compute());
  }

  // Stored rows on the device: k, v of run i. Kernels that are issued to the compute stream while
  // this lives may read them; other stage() calls wait meanwhile.
  class Rows {
   public:
    Rows(Rows&&) = default;
    Rows& operator=(Rows&&) = delete;
    ~Rows();
    const void* k(size_t run) const { return k_[run]; }
    const void* v(size_t run) const { return v_[run]; }

   private:
    friend class Stager;
    Rows(Stager& stager, std::unique_lock<std::mutex> lock, size_t slot)
        : stager_(stager), lock_(std::move(lock)), slot_(slot) {}
    Stager& stager_;
    std::unique_lock<std::mutex> lock_;  // empty: moved from
    size_t slot_;
    std::vector<const void*> k_, v_;
  };
  // row_elements: kv_dim. For packed runs the whole planes are copied as they are, once for all
  // runs that are part of them. Rows that lie near each other in pinned memory, as a reader puts
  // them, are one copy, including the little that lies between them.
  Result<Rows> stage(std::span<const StoredRun> runs, size_t row_elements);

  // See DeviceMemory::keep(). Kernels read kept memory only after stage() of a run that names it.
  Result<std::unique_ptr<DeviceBuffer>> keep(size_t bytes, std::span<const KeptPart> parts);

 private:
  static constexpr size_t kSlots = 4;  // layers on the device ahead of the compute stream
  struct Slot {
    Memory memory;
    UniqueEvent arrived;
    UniqueEvent consumed;
  };

  // A fuse has positions of two sets of rows, a mask and the corrections' rows; several go at once.
  static constexpr size_t kSharedArrays = 32, kSharedBytes = 1 << 20;
  struct SharedArray {
    std::vector<std::byte> bytes;  // as they were
    std::shared_ptr<const Memory> memory;
    uint64_t used = 0;  // larger: later
  };

  explicit Stager(Device& device) : device_(device) {}
  Result<Memory> upload_bytes(const void* from, size_t bytes);
  Result<Shared> share_bytes(const void* from, size_t bytes);
  // Host memory that is copied at once, and its offset in a slot.
  struct Piece {
    const std::byte* from = nullptr;
    size_t bytes = 0;
    size_t at = 0;
  };
  // Pieces that hold all rows which are not on the device yet, by address.
  std::vector<Piece> pieces_of(std::span<const StoredRun> runs, size_t row_elements) const;
  Status copy_rows(std::byte* to, const std::byte* from, size_t bytes);

  Device& device_;
  std::unique_ptr<PinnedPieces> small_;
  std::unique_ptr<PinnedPieces> large_;
  Mutex shared_mutex_;
  std::vector<SharedArray> shared_ BLEND_GUARDED_BY(shared_mutex_);
  uint64_t n_shared_ BLEND_GUARDED_BY(shared_mutex_) = 0;  // times that one was needed
  // Held by Rows, which are moved: that is more than clang can follow.
  std::mutex slots_mutex_;
  size_t next_ = 0;                 // slots_mutex_
  std::array<Slot, kSlots> slots_;  // slots_mutex_
};

}  // namespace blend::cuda
