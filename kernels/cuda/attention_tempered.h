// Attention over two kinds of keys, of which one has a temperature and a scale of its own: APE.
// What it computes stands in kernels/cpu/attention_tempered.h.
#pragma once

#include "cuda/kv_rows.h"

namespace blend::kernels::cuda {

struct TemperedRows {
  Rows q;                             // [n, n_heads * head_dim], rotated
  Rows out;                           // the same shape and type; may be the memory of q
  const uint32_t* pos = nullptr;      // device [n], ascending
  uint32_t last = 0;                  // pos[n - 1]
  const uint8_t* tempered = nullptr;  // device [last + 1]
  float scale = 1.0f;                 // of the scores
  uint32_t window = 0;                // as in AttentionRows
  float softcap = 0.0f;               // as in AttentionRows
  float temperature = 1.0f;
  float sum_scale = 1.0f;
  float* mass = nullptr;  // device [n * n_heads] out: probability put on tempered keys; or null
};

// Rows of one call whose scratch stays within about `bytes`.
size_t tempered_rows_per_call(size_t n_heads, uint32_t last, size_t bytes);
// Floats of scratch for n rows.
size_t tempered_scratch_floats(size_t n, size_t n_heads, uint32_t last);

void attention_tempered(const TemperedRows& rows, const KvView& cache, float* scratch,
                        cudaStream_t stream);

}  // namespace blend::kernels::cuda
