// Device: one GPU, its streams and its memory.
//
// All computation goes to one stream, in the order in which it was issued; copies of stored rows go
// to a second one (stager.h). Memory is allocated in the order of the compute stream from a pool
// that keeps freed memory, so that a fuse after the first allocates nothing from the driver.
#pragma once

#include <cuda_runtime.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/cuda/check.h"
#include "backend/cuda/primary_context.h"
#include "base/status.h"
#include "base/threads/guarded.h"

namespace blend::cuda {

// Owns a CUDA handle; destroying it reports no error, as nothing could be done.
template <typename Handle, cudaError_t (*kDestroy)(Handle)>
class Unique {
 public:
  Unique() = default;
  explicit Unique(Handle handle) : handle_(handle) {}
  Unique(Unique&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Unique& operator=(Unique&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Unique() {
    if (handle_ != nullptr) (void)kDestroy(handle_);
  }
  Handle get() const { return handle_; }

 private:
  Handle handle_ = nullptr;
};
using UniqueStream = Unique<cudaStream_t, cudaStreamDestroy>;
using UniqueEvent = Unique<cudaEvent_t, cudaEventDestroy>;
using UniquePool = Unique<cudaMemPool_t, cudaMemPoolDestroy>;

class Device;
class Recorder;

// Device memory; freed in the order of the stream that it is used in. Move-only.
class Memory {
 public:
  Memory() = default;
  Memory(Device* device, void* data, size_t bytes, cudaStream_t stream)
      : device_(device), data_(data), bytes_(bytes), stream_(stream) {}
  // Lent by a recorder, and returned to it.
  Memory(Recorder* lender, void* data, size_t bytes)
      : lender_(lender), data_(data), bytes_(bytes) {}
  Memory(Memory&& other) noexcept { *this = std::move(other); }
  Memory& operator=(Memory&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(lender_, other.lender_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(stream_, other.stream_);
    return *this;
  }
  ~Memory();

  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  size_t bytes() const { return bytes_; }
  // From here on freed in the order of this stream, which waits for the one it was allocated in.
  void hand_to(cudaStream_t stream) { stream_ = stream; }

 private:
  Device* device_ = nullptr;
  Recorder* lender_ = nullptr;
  void* data_ = nullptr;
  size_t bytes_ = 0;
  cudaStream_t stream_ = nullptr;
};

// Pinned host memory; returned to its device's store of such. The owner must have waited for the
// device to read it. Move-only.
class Pinned {
 public:
  Pinned() = default;
  Pinned(Device* device, void* data, size_t bytes) : device_(device), data_(data), bytes_(bytes) {}
  Pinned(Pinned&& other) noexcept { *this = std::move(other); }
  Pinned& operator=(Pinned&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Pinned();

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  size_t bytes() const { return bytes_; }

 private:
  Device* device_ = nullptr;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

// Thread-safe. Calls other than ordinal(), name() and context() require the device to be the
// thread's (DeviceScope).
class Device {
 public:
  // NO_DEVICE: no driver, no device, or none with that ordinal. UNSUPPORTED: older than sm_80.
  static Result<std::unique_ptr<Device>> open(int ordinal);
  ~Device();

  int ordinal() const { return ordinal_; }
  const PrimaryContext& context() const { return *context_; }
  const std::string& name() const { return name_; }
  uint32_t n_multiprocessors() const { return n_multiprocessors_; }
  // While the calling thread records a step (recorder.h), the stream that captures it.
  cudaStream_t compute() const;
  cudaStream_t copies() const { return copies_.get(); }

  // Used in the compute stream, unless another is named. OUT_OF_MEMORY says how much was asked for
  // and how much is free. While a step is recorded, memory that the recording keeps.
  Result<Memory> allocate(size_t bytes);
  Result<Memory> allocate(size_t bytes, cudaStream_t stream);
  // At least `bytes` of pinned host memory, aligned to a page. The driver takes milliseconds for
  // it, so returned memory is kept for the next call: kKeptPinnedBytes, or as much as was in use at
  // once, so that a ring of any size is pinned once and not for every fuse.
  Result<Pinned> pin(size_t bytes);
  // Whether [p, p + bytes) lies in memory of pin() that is in use.
  bool is_pinned(const void* p, size_t bytes) const;

  Result<UniqueEvent> make_event() const;
  // Blocks the caller until everything issued to `stream` is done.
  Status wait(cudaStream_t stream) const;

  // Bytes that the driver can still give, including the pool's unused ones.
  size_t free_bytes() const;
  // "device 0 (NAME) has F of T bytes free".
  std::string room() const;

 private:
  friend class Pinned;
  friend class Recorder;  // needs the compute stream itself
  static constexpr size_t kKeptPinnedBytes = size_t{1} << 30;

  Device() = default;
  void give_back(void* p, size_t bytes);
  void note_out(const void* p, size_t bytes) BLEND_REQUIRES(mutex_);

  std::unique_ptr<PrimaryContext> context_;  // outlives all members below
  int ordinal_ = 0;
  std::string name_;
  uint32_t n_multiprocessors_ = 0;
  UniquePool pool_;  // outlives the streams, in whose order memory is freed
  UniqueStream compute_;
  UniqueStream copies_;

  mutable Mutex mutex_;
  std::map<const char*, size_t> pinned_out_ BLEND_GUARDED_BY(mutex_);
  std::multimap<size_t, void*> pinned_kept_ BLEND_GUARDED_BY(mutex_);
  size_t pinned_kept_bytes_ BLEND_GUARDED_BY(mutex_) = 0;
  size_t pinned_out_bytes_ BLEND_GUARDED_BY(mutex_) = 0;
  size_t most_pinned_out_ BLEND_GUARDED_BY(mutex_) = 0;
};

}  // namespace blend::cuda
