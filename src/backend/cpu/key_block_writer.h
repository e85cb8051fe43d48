// KeyBlockWriter: rows into a KV cache, a key block at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "backend/cpu/kv_cache.h"
#include "backend/cpu/rope_table.h"
#include "cpu/convert.h"
#include "cpu/drift.h"
#include "cpu/scatter_k.h"

namespace blend::cpu {

// Writes rows of one key block into the cache: K is rotated in scratch, then transposed.
class KeyBlockWriter {
 public:
  static size_t scratch_floats(const kernels::KvLayout& layout) {
    return kernels::kKeyBlock * stride(layout);
  }

  KeyBlockWriter(const CpuKvCache& cache, uint32_t layer, const CpuRopeTable& rope, float* scratch)
      : cache_(cache),
        layer_(layer),
        rope_(rope),
        kv_dim_(cache.kv_dim(layer)),
        scratch_(scratch) {}

  // k, v: [kv_dim] of dtype. drift: [2 * kv_dim], added to K | V; null: nothing is.
  void add(const std::byte* k, const std::byte* v, DType dtype, uint32_t slot,
           const float* drift = nullptr) {
    const kernels::KvLayout& layout = cache_.layout(layer_);
    float* const row = scratch_ + n_ * stride(layout);
    const float* const v_drift = drift == nullptr ? nullptr : drift + kv_dim_;
    if (layout.latent()) {
      decode(v, dtype, kv_dim_, v_drift, row + kv_dim_);  // one key, in halves
    } else {
      // First V, which uses the scratch row that K then occupies.
      put_value(v, dtype, v_drift, slot, row);
    }
    decode(k, dtype, kv_dim_, drift, row);
    kernels::rope(rope_.row(slot, layout.n_kv_heads, layout.head_dim), row);
    slots_[n_++] = slot;
    if (n_ == kernels::kKeyBlock) flush();
  }
  // False: K or V of a row so far is not finite in the cache's 16 bits.
  bool flush() {
    const kernels::KvLayout& layout = cache_.layout(layer_);
    finite_ &= kernels::scatter_k(scratch_, stride(layout), slots_, n_, layout, cache_.dtype(),
                                  cache_.k(layer_));
    n_ = 0;
    return finite_;
  }

 private:
  // Not a power of two, so that sixteen rows do not map to the same cache set.
  static size_t stride(const kernels::KvLayout& layout) {
    return layout.n_kv_heads * layout.head_dim + 16;
  }

  static size_t size_of(DType dtype) { return static_cast<size_t>(dtype_size(dtype)); }
  // from: [n] of dtype; added (may be null), out: [n].
  static void decode(const std::byte* from, DType dtype, size_t n, const float* added, float* out) {
    if (added == nullptr) {
      kernels::decode(from, dtype, n, out);
    } else {
      kernels::decode_add(from, dtype, n, added, out);
    }
  }
  // wide: [head_dim], overwritten.
  void put_value(const std::byte* v, DType dtype, const float* added, uint32_t slot, float* wide) {
    const kernels::KvLayout& layout = cache_.layout(layer_);
    const size_t dim = layout.head_dim;
    const bool as_it_is = added == nullptr && dtype == cache_.dtype();
    for (size_t h = 0; h < layout.n_kv_heads; ++h) {
      const std::byte* const from = v + h * dim * size_of(dtype);
      const float* const more = added == nullptr ? nullptr : added + h * dim;
      std::byte* const out = cache_.value(layer_, h, slot);
      if (as_it_is) {
        std::memcpy(out, from, dim * size_of(dtype));
      } else if (cache_.dtype() == DType::f32) {
        decode(from, dtype, dim, more, reinterpret_cast<float*>(out));
      } else {
        decode(from, dtype, dim, more, wide);
        finite_ &= kernels::encode(wide, dim, cache_.dtype(), out);
      }
    }
  }

  const CpuKvCache& cache_;
  const uint32_t layer_;
  const CpuRopeTable& rope_;
  const size_t kv_dim_;
  float* const scratch_;
  uint32_t slots_[kernels::kKeyBlock] = {};
  size_t n_ = 0;
  bool finite_ = true;
};

// The error for a row that threads found not to fit the cache's type.
inline Status cache_not_finite(const CpuKvCache& cache, uint32_t layer) {
  return make_error(BLEND_E_NUMERIC,
                    "K or V of layer %u is not finite in %s, which the context keeps them in: the "
                    "model's activations overflow; choose %s for cache_dtype",
                    layer, dtype_name(cache.dtype()),
                    cache.dtype() == DType::f16 ? "bf16 or f32" : "f32");
}

}  // namespace blend::cpu
