#pragma once

#include "backend/cpu/scratch.h"
#include "backend/family_ops.h"
#include "base/threads/thread_pool.h"

namespace blend::cpu {

class CpuFamilyOps final : public FamilyOps {
 public:
  CpuFamilyOps(ThreadPool& pool, ScratchPool& scratch) : pool_(pool), scratch_(scratch) {}
  Status norm_values(Tensor kv, uint32_t n_heads, uint32_t head_dim, float eps) override;
  Status embed_part(const Weight& table, const int32_t* tokens, uint32_t first,
                    Tensor out) override;
  Status gate(Activation activation, Tensor x, Tensor by) override;
  Status cut(Tensor x, uint32_t n, float deviations) override;
  Status scale_part(Tensor x, uint32_t first, uint32_t n, float factor) override;

 private:
  ThreadPool& pool_;
  ScratchPool& scratch_;
};

}  // namespace blend::cpu
