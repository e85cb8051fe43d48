// Puts rotated keys into the cache's transposed layout.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/kv_layout.h"

namespace blend::kernels {

// rows: n rows of [n_kv_heads * head_dim] at `stride` floats; row i goes to slots[i] of k, a layer
// of `layout`, rounded to dtype. Sixteen rows that fill one key block are transposed in registers.
// False if a result is not finite in f16 or bf16; everything is written all the same. f32 is not
// checked.
[[nodiscard]] bool scatter_k(const float* rows, size_t stride, const uint32_t* slots, size_t n,
                             const KvLayout& layout, DType dtype, void* k);
[[nodiscard]] bool scatter_k_ref(const float* rows, size_t stride, const uint32_t* slots, size_t n,
                                 const KvLayout& layout, DType dtype, void* k);

}  // namespace blend::kernels
