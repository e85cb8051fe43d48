// Attention of gathered query rows over one layer of the KV cache, for prefill, fusion and decode.
#pragma once

#include "cuda/attention_plan.h"
#include "cuda/kv_rows.h"

namespace blend::kernels::cuda {

struct AttentionRows {
  Rows q;                         // [n, n_heads * head_dim], rotated
  Rows out;                       // the same shape; may be the memory of q if of its type
  const uint32_t* pos = nullptr;  // device [n], ascending, < slots
  float scale = 1.0f;             // of the scores: 1 / sqrt(head_dim)
  uint32_t window = 0;            // slots that a row sees, itself the last; 0: all up to it
  float softcap = 0.0f;           // scores become softcap * tanh(score / softcap); 0: off
  // device [n_heads]: a score of each head that is as if of one more key, without a value; or null
  const float* sinks = nullptr;
};

// Must have been called on a device before attention() is.
cudaError_t prepare_attention();

// out[i] = softmax(q[i] K^T * scale) V over the slots that row i sees, per head; slots 0..pos[n -
// 1] must have been written. plan: plan_attention() of these shapes; scratch: device
// [plan.scratch_floats()], may be null where that is 0.
void attention(const AttentionRows& rows, const KvView& cache, const AttentionPlan& plan,
               float* scratch, cudaStream_t stream);

}  // namespace blend::kernels::cuda
