// Moves keys inside or between caches and rotates them to their new positions.
#pragma once

#include <cstddef>

#include "cpu/kv_layout.h"
#include "cpu/rope.h"

namespace blend::kernels {

// RoPE rotates a key by position * frequency, so moving it by n positions is one more rotation by
// n * frequency, whatever its position: every key of a move has the same cos and sin.
struct KeyMove {
  RopeRow turn;  // one head: cos, sin of the distance; n_heads is not used
  size_t from = 0;
  size_t to = 0;
  size_t n = 0;  // slots [from, from + n) go to [to, to + n)
};

// src, dst: one head of K, [slots / 16][head_dim][16] (KvLayout). They may be the same head and the
// ranges may overlap; all other slots of dst stay unchanged. sin_sign: 1, or -1 to rotate back.
// Both are of dtype, to which rotated keys are rounded; a rotation by 0 changes no bit.
void move_keys(const KeyMove& move, float sin_sign, DType dtype, const void* src, void* dst);
void move_keys_ref(const KeyMove& move, float sin_sign, DType dtype, const void* src, void* dst);

}  // namespace blend::kernels
