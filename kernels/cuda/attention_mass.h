// Where attention goes: the probability that query rows put on every key.
#pragma once

#include "cuda/kv_rows.h"

namespace blend::kernels::cuda {

struct MassRows {
  Rows q;                         // [n, n_heads * head_dim], rotated
  const uint32_t* pos = nullptr;  // device [n], ascending
  uint32_t last = 0;              // pos[n - 1]
  float scale = 1.0f;
  uint32_t window = 0;   // as in AttentionRows
  float softcap = 0.0f;  // as in AttentionRows
};

// Rows of one call whose scratch stays within about `bytes`.
size_t mass_rows_per_call(size_t n_heads, uint32_t last, size_t bytes);
// Floats of scratch for n rows.
size_t mass_scratch_floats(size_t n, size_t n_heads, uint32_t last);

// mass[j] += the sum over rows and heads of softmax(q K^T * scale)[j]; mass: device [last + 1]. The
// same to the last bit on every run.
void attention_mass(const MassRows& rows, const KvView& cache, float* scratch, float* mass,
                    cudaStream_t stream);

}  // namespace blend::kernels::cuda
