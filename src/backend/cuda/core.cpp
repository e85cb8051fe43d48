#include "backend/cuda/core.h"

namespace blend::cuda {

Status CudaCore::start() {
  BLEND_ASSIGN(stager_, Stager::create(*device_, pool_));
  return Status::ok();
}

Status CudaCore::fetch(void* to, const void* from, size_t bytes) const {
  if (bytes == 0) return Status::ok();
  BLEND_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream()));
  return device_->wait(stream());
}

Result<Memory> CudaCore::make_counter() const {
  BLEND_ASSIGN(Memory counter, device_->allocate(sizeof kNone));
  BLEND_CUDA_CHECK(cudaMemsetAsync(counter.as<void>(), 0xff, sizeof kNone, stream()));
  return counter;
}

Result<unsigned long long> CudaCore::read_counter(const Memory& counter) const {
  unsigned long long value = 0;
  BLEND_RETURN_IF_ERROR(fetch(&value, counter.as<void>(), sizeof value));
  return value;
}

}  // namespace blend::cuda
