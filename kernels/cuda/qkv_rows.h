// Q, K and V of fresh rows from one product, copied to where attention reads them.
#pragma once

#include "cuda/kv_rows.h"
#include "cuda/step_rows.h"

namespace blend::kernels::cuda {

// All pointers are of the device.
struct QkvRows {
  const float* data = nullptr;  // [n, q_dim + 2 * kv_dim] = Q | K | V, before RoPE
  size_t n = 0;
  uint32_t q_dim = 0;
  const uint32_t* pos = nullptr;  // [n]: the row's slot, and its angle
};

// Q rotated -> q: bf16 [n, q_dim]; K rotated and V -> the cache, both unchanged -> kv: f32
// [n, 2 * kv_dim].
void place_qkv(const QkvRows& rows, const RopeView& q_rope, const RopeView& k_rope,
               const KvView& cache, uint16_t* q, float* kv, cudaStream_t stream);

// The same for rows that each have a cache and tables of their own, but without kv; data and q are
// indexed by StepRows::Row::row. q_rope, k_rope: common properties of the tables.
void place_step(const StepRows& rows, const float* data, uint32_t q_dim, const RopeView& q_rope,
                const RopeView& k_rope, uint16_t* q, cudaStream_t stream);

}  // namespace blend::kernels::cuda
