// CpuHostOps: K and V in the memory of a host that runs the model itself.
#pragma once

#include "backend/cpu/scratch.h"
#include "backend/host_ops.h"
#include "base/threads/thread_pool.h"

namespace blend::cpu {

// Thread-safe as CpuBackend is, whose pool and scratch it uses.
class CpuHostOps final : public HostOps {
 public:
  CpuHostOps(ThreadPool& pool, ScratchPool& scratch) : pool_(pool), scratch_(scratch) {}

  Status read(const HostKv& src, const RopeTable& rope, const uint32_t* pos, Tensor kv) override;
  Status scatter(const HostKv& dst, const RopeTable& rope, std::span<const StoredRun> runs,
                 const uint8_t* skip, const Correction* correction) override;

 private:
  ThreadPool& pool_;
  ScratchPool& scratch_;
};

}  // namespace blend::cpu
