// Puts rotated keys into the cache's transposed layout.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/kv_layout.h"

namespace blend::kernels {

// rows: n rows of [n_kv_heads * head_dim] at `stride` floats; row i goes to slots[i] of k, a layer
// of `layout`. Sixteen rows that fill one key block are transposed in registers.
void scatter_k(const float* rows, size_t stride, const uint32_t* slots, size_t n,
               const KvLayout& layout, float* k);
void scatter_k_ref(const float* rows, size_t stride, const uint32_t* slots, size_t n,
                   const KvLayout& layout, float* k);

}  // namespace blend::kernels
