// Attention over two kinds of keys, of which one has a temperature and a scale of its own.
//
// APE (Yang et al. 2025, "Adaptive Parallel Encoding", section 4): keys of contexts that were
// encoded in parallel are attended to at a temperature T, and the logarithm of their sum is scaled
// by S before the two kinds share a row's attention:
//   Z_t = sum over tempered keys of exp(s_j / T),  Z_o = sum over the others of exp(s_j)
//   out = (Z_t^S * mean_t(V) + Z_o * mean_o(V)) / (Z_t^S + Z_o)
// with the means by those weights. A sink is one of the others, with 0 for its V. T = S = 1 is
// plain attention. It runs for the rows of a question and for decoded ones, which are few, so every
// score of a row is written down before it is weighed. It also reports the share of a row's
// attention that went to tempered keys.
#pragma once

#include <cstddef>
#include <cstdint>

#include "formats/half.h"

namespace blend::kernels {

struct TemperedBlock {
  const float* q = nullptr;  // [n_rows] at stride: one head of head_dim
  float* out = nullptr;      // the same shape and stride; may be the memory of q
  size_t stride = 0;
  const uint32_t* pos = nullptr;  // [n_rows], ascending, < slots
  size_t n_rows = 0;
  const void* k = nullptr;  // its KV head: [slots / 16][head_dim][16] of dtype, see kv_layout.h
  const void* v = nullptr;  // [slots][v_stride] of dtype; not used with values_from
  size_t head_dim = 0;
  size_t v_stride = 0;
  size_t values_from = 0;             // as in AttentionBlock
  const uint8_t* tempered = nullptr;  // [pos[n_rows - 1] + 1]: non-zero = of the first kind
  float scale = 1.0f;                 // of the scores: 1 / sqrt(head_dim)
  uint32_t window = 0;                // as in AttentionBlock
  float softcap = 0;                  // as in AttentionBlock
  const float* sink = nullptr;        // the head's, as in AttentionBlock; null: none
  float temperature = 1.0f;           // > 0
  float sum_scale = 1.0f;             // S
  float* mass = nullptr;              // [n_rows] out: the probability put on tempered keys; or null
  DType dtype = DType::f32;           // of k and v

  size_t first_key(uint32_t p) const { return window == 0 || p < window ? 0 : p - window + 1; }
};

// Floats of scratch for a block whose last row is at `pos`.
size_t attention_tempered_scratch_floats(size_t pos, size_t head_dim);

// scratch: 64-byte aligned.
void attention_tempered(const TemperedBlock& block, float* scratch);
void attention_tempered_ref(const TemperedBlock& block);

}  // namespace blend::kernels
