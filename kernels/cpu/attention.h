// Attention of a block of query rows over one KV head.
//
// Rows may be any rows of the prompt: row i sees exactly the slots 0..pos[i], or the last `window`
// of them (CacheBlend recomputes scattered rows, so the mask cannot be a triangle or a band). Keys
// go by in tiles with the online softmax of FlashAttention (Dao et al. 2022), and the query heads
// that share the KV head (GQA) are vectors of the same block, so that a tile of K and V is read
// once for all of them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/kv_layout.h"

namespace blend::kernels {

struct AttentionBlock {
  const float* q = nullptr;  // [n_rows] at q_stride; a row holds `group` heads of head_dim
  size_t q_stride = 0;
  float* out = nullptr;  // the same shape; may be the memory of q
  size_t out_stride = 0;
  const uint32_t* pos = nullptr;  // [n_rows], ascending, < slots
  size_t n_rows = 0;
  size_t group = 1;
  const void* k = nullptr;  // one KV head: [slots / 16][head_dim][16] of dtype, see kv_layout.h
  const void* v = nullptr;  // one KV head: [slots][v_stride] of dtype; not used with values_from
  size_t head_dim = 0;
  size_t v_stride = 0;
  float scale = 1.0f;   // of the scores: 1 / sqrt(head_dim)
  uint32_t window = 0;  // slots that a row sees, itself the last of them; 0: all up to it
  float softcap = 0;    // scores become softcap * tanh(score / softcap); 0: off
  // [group]: a score of each head that is as if of one more key, without a value; null: none.
  const float* sinks = nullptr;
  DType dtype = DType::f32;  // of k and v, which are widened in registers
  // Not 0: a key's elements from this one on are its value (KvLayout). They are at the same place
  // in `out`, whose elements before them are left alone.
  size_t values_from = 0;

  size_t value_dim() const { return head_dim - values_from; }
  // The first slot that a row at position p sees.
  size_t first_key(uint32_t p) const { return window == 0 || p < window ? 0 : p - window + 1; }
};

// Rows of a block that suit the caches for `group` query heads a KV head.
size_t attention_rows_per_block(size_t group);
// Floats of scratch that attention() needs for a block of n_rows; a multiple of 16.
size_t attention_scratch_floats(size_t n_rows, size_t group, size_t head_dim);

// scratch: 64-byte aligned, of attention_scratch_floats().
void attention(const AttentionBlock& block, float* scratch);
void attention_ref(const AttentionBlock& block);

}  // namespace blend::kernels
