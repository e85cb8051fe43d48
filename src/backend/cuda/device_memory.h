// CudaDeviceMemory: the GPU's own memory.
#pragma once

#include "backend/cuda/core.h"
#include "backend/device_memory.h"

namespace blend::cuda {

// Thread-safe as CudaBackend is, whose core it uses.
class CudaDeviceMemory final : public DeviceMemory {
 public:
  explicit CudaDeviceMemory(const CudaCore& core) : core_(core) {}

  Result<std::unique_ptr<DeviceBuffer>> keep(size_t bytes,
                                             std::span<const KeptPart> parts) override;
  Status check_capacity(uint64_t n_elements) override;

 private:
  const CudaCore& core_;
};

}  // namespace blend::cuda
