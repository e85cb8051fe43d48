// The common first part of every kind of attention over one cache.
#pragma once

#include <cstdint>

#include "backend/attention.h"
#include "backend/cuda/core.h"
#include "cuda/attention.h"

namespace blend::cuda {

struct AttentionCall {
  kernels::cuda::KvView view;
  uint32_t last = 0;  // position
  kernels::cuda::AttentionPlan plan;
  Stager::Shared pos;
  kernels::cuda::AttentionRows rows;
};

// op names it in errors. q.rows > 0.
Result<AttentionCall> begin_attention(const CudaCore& core, const char* op, const KvCache& cache,
                                      uint32_t layer, const AttentionRule& rule, Tensor q,
                                      const uint32_t* pos, Tensor out);

}  // namespace blend::cuda
