// CudaHostOps: K and V in the memory of a host that runs the model itself.
#pragma once

#include "backend/cuda/core.h"
#include "backend/host_ops.h"

namespace blend::cuda {

// Thread-safe as CudaBackend is, whose core it uses.
class CudaHostOps final : public HostOps {
 public:
  explicit CudaHostOps(const CudaCore& core) : core_(core) {}

  Status read(const HostKv& src, const RopeTable& rope, const uint32_t* pos, Tensor kv) override;
  Status scatter(const HostKv& dst, const RopeTable& rope, std::span<const StoredRun> runs,
                 const uint8_t* skip, const Correction* correction) override;

 private:
  const CudaCore& core_;
};

}  // namespace blend::cuda
