// Attention of the rows of a step, each over a cache of its own, by one launch, and one more where
// the keys of any are split. A row is split and combined as by itself, so its result is, to the
// bit, that of attention().
#pragma once

#include "cuda/attention.h"
#include "cuda/step_rows.h"

namespace blend::kernels::cuda {

// Must have been called on a device before attention_each() is.
cudaError_t prepare_attention_each();

// plan: that of any of the rows by itself; they differ in `splits` only, the number of their parts.
size_t each_scratch_floats(const StepRows& rows, const AttentionPlan& plan);

// all: q and out are indexed by StepRows::Row::row, pos is not used; scratch: device
// [each_scratch_floats()], may be null where that is 0.
void attention_each(const StepRows& rows, const AttentionRows& all, const AttentionPlan& plan,
                    float* scratch, cudaStream_t stream);

}  // namespace blend::kernels::cuda
