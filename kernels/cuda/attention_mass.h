// Attention mass: the probability that query rows put on every key.
#pragma once

#include "cuda/attention.h"

namespace blend::kernels::cuda {

// Must have been called on a device before attention_mass() is.
cudaError_t prepare_attention_mass();

// Floats of scratch for rows of this plan, the last at position `last`. n_sms: multiprocessors.
size_t mass_scratch_floats(const AttentionPlan& plan, uint32_t last, uint32_t n_sms);

// mass[j] += the sum over rows and heads of softmax(q K^T * scale)[j]; mass: device [last + 1].
// rows.out is not used; plan: as for attention(). The same to the last bit on every run.
void attention_mass(const AttentionRows& rows, const KvView& cache, const AttentionPlan& plan,
                    uint32_t last, uint32_t n_sms, float* scratch, float* mass,
                    cudaStream_t stream);

}  // namespace blend::kernels::cuda
