// The layout of a layer's KV cache in memory, and the types of its elements.
//
// They are f32, f16 or bf16 (DType); offsets count elements.
//
// K: [n_kv_heads][slots / 16][head_dim][16]: sixteen keys side by side, so that q.K of sixteen keys
// is head_dim multiply-adds of whole vectors and needs no sum across lanes.
// V: [n_kv_heads][slots][v_stride]: rows padded to whole vectors; the padding is never read. Where
// keys are latent rows there is none: the last elements of a key are its value.
#pragma once

#include <cstddef>
#include <cstdint>

#include "formats/half.h"

namespace blend::kernels {

inline constexpr size_t kKeyBlock = 16;  // keys side by side
// Slots are allocated in multiples of this: attention reads two key blocks at once.
inline constexpr size_t kSlotMultiple = 2 * kKeyBlock;

constexpr size_t round_up(size_t n, size_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

struct KvLayout {
  size_t n_kv_heads = 0;
  size_t head_dim = 0;
  size_t slots = 0;        // multiple of kSlotMultiple
  size_t values_from = 0;  // not 0: the value of a slot is its key from this element on

  bool latent() const { return values_from != 0; }
  // Elements of K, and as many of V, of a row as it comes and goes.
  size_t kv_dim() const { return latent() ? head_dim / 2 : n_kv_heads * head_dim; }
  size_t v_stride() const { return latent() ? 0 : round_up(head_dim, 16); }
  size_t k_head_elements() const { return slots * head_dim; }
  size_t v_head_elements() const { return slots * v_stride(); }
  size_t k_elements() const { return n_kv_heads * k_head_elements(); }
  size_t v_elements() const { return n_kv_heads * v_head_elements(); }
  // Element e of a slot's key is at k_offset() + e * kKeyBlock.
  size_t k_offset(size_t head, size_t slot) const {
    return head * k_head_elements() + slot / kKeyBlock * (kKeyBlock * head_dim) + slot % kKeyBlock;
  }
  size_t v_offset(size_t head, size_t slot) const {
    return head * v_head_elements() + slot * v_stride();
  }
};

// Element i of a cache of `dtype`.
inline float cached_value(const void* cache, DType dtype, size_t i) {
  if (dtype == DType::f32) return static_cast<const float*>(cache)[i];
  const uint16_t h = static_cast<const uint16_t*>(cache)[i];
  return dtype == DType::f16 ? f16_to_f32(h) : bf16_to_f32(h);
}

}  // namespace blend::kernels
