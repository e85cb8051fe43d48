// CudaCore: what all operations of the CUDA backend share: the device, host memory on its way to
// it, and results on their way back.
#pragma once

#include <memory>
#include <utility>

#include "backend/cuda/device.h"
#include "backend/cuda/stager.h"
#include "backend/tensor.h"
#include "base/threads/thread_pool.h"
#include "cuda/rows.h"

namespace blend::cuda {

inline DType type_of(const Tensor& t) { return t.elem_bytes == 4 ? DType::f32 : DType::bf16; }
inline kernels::cuda::Rows rows_of(const Tensor& t) {
  return {t.data, type_of(t), static_cast<size_t>(t.rows), static_cast<size_t>(t.cols)};
}

// Thread-safe once start() has returned. Calls other than enter() require the device to be the
// thread's.
class CudaCore {
 public:
  // `pool` copies to pinned memory; it must outlive this.
  CudaCore(std::unique_ptr<Device> device, ThreadPool& pool)
      : device_(std::move(device)), pool_(pool) {}
  Status start();

  DeviceScope enter() const { return DeviceScope(device_->context()); }
  Device& device() const { return *device_; }
  Stager& stager() const { return *stager_; }
  ThreadPool& pool() const { return pool_; }
  cudaStream_t stream() const { return device_->compute(); }

  // Copies device memory to the host; waits for it.
  Status fetch(void* to, const void* from, size_t bytes) const;
  // A counter that kernels lower to the index of the first error; kNone at first.
  static constexpr unsigned long long kNone = ~0ull;
  Result<Memory> make_counter() const;
  Result<unsigned long long> read_counter(const Memory& counter) const;

 private:
  const std::unique_ptr<Device> device_;  // outlives all members below
  ThreadPool& pool_;
  std::unique_ptr<Stager> stager_;
};

}  // namespace blend::cuda
