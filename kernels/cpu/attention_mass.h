// Where attention goes: the probability that query rows put on every key.
//
// The weights by which attention() sums V, themselves summed over rows: a policy weighs rows by how
// much the question looks at them. It runs once a fuse, for the few rows of a question.
#pragma once

#include <cstddef>
#include <cstdint>

#include "formats/half.h"

namespace blend::kernels {

struct AttentionMassBlock {
  const float* q = nullptr;  // [n_rows] at q_stride: one head of head_dim
  size_t q_stride = 0;
  const uint32_t* pos = nullptr;  // [n_rows], ascending, < slots
  size_t n_rows = 0;
  const void* k = nullptr;  // its KV head: [slots / 16][head_dim][16] of dtype, see kv_layout.h
  size_t head_dim = 0;
  float scale = 1.0f;           // of the scores: 1 / sqrt(head_dim)
  uint32_t window = 0;          // as in AttentionBlock
  float softcap = 0;            // as in AttentionBlock
  const float* sink = nullptr;  // the head's, as in AttentionBlock; null: none
  DType dtype = DType::f32;     // of k

  size_t first_key(uint32_t p) const { return window == 0 || p < window ? 0 : p - window + 1; }
};

// Floats of `scratch` and of `mass` that a block whose last row is at `pos` needs.
size_t attention_mass_scratch_floats(size_t pos);
size_t attention_mass_floats(size_t pos);

// mass[j] += sum over the rows i of softmax(q[i] K^T * scale)[j], over the keys that row i sees. A
// sink has its part of the softmax, but no slot of the mass.
// mass: [attention_mass_floats()], of which the part past the last row's key stays unchanged or
// grows by 0; both 64-byte aligned.
void attention_mass(const AttentionMassBlock& block, float* mass, float* scratch);
void attention_mass_ref(const AttentionMassBlock& block, float* mass);

}  // namespace blend::kernels
