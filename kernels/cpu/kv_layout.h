// Where the elements of a layer's KV cache lie.
//
// K: [n_kv_heads][slots / 16][head_dim][16]: sixteen keys side by side, so that q.K of sixteen keys
// is head_dim multiply-adds of whole vectors and needs no sum across lanes.
// V: [n_kv_heads][slots][v_stride]: rows padded to whole vectors; what the padding holds is never
// looked at.
#pragma once

#include <cstddef>

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
  size_t slots = 0;  // multiple of kSlotMultiple

  size_t v_stride() const { return round_up(head_dim, 16); }
  size_t k_head_floats() const { return slots * head_dim; }
  size_t v_head_floats() const { return slots * v_stride(); }
  size_t k_floats() const { return n_kv_heads * k_head_floats(); }
  size_t v_floats() const { return n_kv_heads * v_head_floats(); }
  // Element e of a slot's key is at k_offset() + e * kKeyBlock.
  size_t k_offset(size_t head, size_t slot) const {
    return head * k_head_floats() + slot / kKeyBlock * (kKeyBlock * head_dim) + slot % kKeyBlock;
  }
  size_t v_offset(size_t head, size_t slot) const {
    return head * v_head_floats() + slot * v_stride();
  }
};

}  // namespace blend::kernels
