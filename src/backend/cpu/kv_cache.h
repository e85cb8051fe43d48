// CpuKvCache: K and V of all layers in f32, in the layout of kernels/cpu/kv_layout.h.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "backend/backend.h"
#include "backend/cpu/memory.h"
#include "cpu/kv_layout.h"

namespace blend::cpu {

// Concurrent calls may touch different layers, or different slots in blocks of 16. Memory is not
// initialised: attention reads a slot only once a row at or behind it is asked for.
class CpuKvCache final : public KvCache {
 public:
  static Result<std::unique_ptr<CpuKvCache>> create(const ModelConfig& config, uint32_t capacity) {
    kernels::KvLayout layout;
    layout.n_kv_heads = config.n_kv_heads;
    layout.head_dim = config.head_dim;
    layout.slots = kernels::round_up(capacity, kernels::kSlotMultiple);
    const size_t layer_floats = layout.k_floats() + layout.v_floats();
    BLEND_ASSIGN(AlignedBuffer data,
                 allocate_tensor(layer_floats * config.n_layers * sizeof(float)));
    return std::unique_ptr<CpuKvCache>(new CpuKvCache(layout, capacity, std::move(data)));
  }

  uint32_t capacity() const override { return capacity_; }
  const kernels::KvLayout& layout() const { return layout_; }
  size_t kv_dim() const { return layout_.n_kv_heads * layout_.head_dim; }
  float* k(uint32_t layer) const {
    return data_.as<float>() + layer * (layout_.k_floats() + layout_.v_floats());
  }
  float* v(uint32_t layer) const { return k(layer) + layout_.k_floats(); }

 private:
  CpuKvCache(const kernels::KvLayout& layout, uint32_t capacity, AlignedBuffer data)
      : layout_(layout), capacity_(capacity), data_(std::move(data)) {}

  kernels::KvLayout layout_;
  uint32_t capacity_;
  AlignedBuffer data_;
};

}  // namespace blend::cpu
