// Attention over two kinds of keys, of which one has a temperature and a scale of its own: APE.
// kernels/cpu/attention_tempered.h has the formula.
#pragma once

#include "cuda/attention.h"

namespace blend::kernels::cuda {

struct Tempered {
  const uint8_t* slots = nullptr;  // device [the last row's position + 1]: non-zero = tempered
  float temperature = 1.0f;
  float sum_scale = 1.0f;
  float* mass = nullptr;  // device [n * n_heads] out: probability put on tempered keys; or null
};

// Must have been called on a device before attention_tempered() is.
cudaError_t prepare_attention_tempered();

// Floats of scratch for rows of this plan.
inline size_t tempered_scratch_floats(const AttentionPlan& plan) { return 2 * plan.part_floats(); }

// rows.out may be the memory of rows.q if of its type. plan: as for attention().
void attention_tempered(const AttentionRows& rows, const Tempered& tempered, const KvView& cache,
                        const AttentionPlan& plan, float* scratch, cudaStream_t stream);

}  // namespace blend::kernels::cuda
