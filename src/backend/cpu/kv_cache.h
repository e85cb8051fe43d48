// CpuKvCache: K and V of all layers, in f32, f16 or bf16, in the layout of kernels/cpu/kv_layout.h.
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
  static Result<std::unique_ptr<CpuKvCache>> create(const ModelConfig& config, uint32_t capacity,
                                                    DType dtype) {
    kernels::KvLayout layout;
    layout.n_kv_heads = config.n_kv_heads;
    layout.head_dim = config.head_dim;
    layout.slots = kernels::round_up(capacity, kernels::kSlotMultiple);
    const size_t layer = (layout.k_elements() + layout.v_elements()) * size_of(dtype);
    BLEND_ASSIGN(AlignedBuffer data, allocate_tensor(layer * config.n_layers));
    return std::unique_ptr<CpuKvCache>(new CpuKvCache(layout, capacity, dtype, std::move(data)));
  }

  uint32_t capacity() const override { return capacity_; }
  const kernels::KvLayout& layout() const { return layout_; }
  size_t kv_dim() const { return layout_.n_kv_heads * layout_.head_dim; }
  DType dtype() const { return dtype_; }
  std::byte* k(uint32_t layer) const {
    const size_t elements = layer * (layout_.k_elements() + layout_.v_elements());
    return data_.data() + elements * size_of(dtype_);
  }
  // Element 0 of a slot's key (the next is kKeyBlock elements on), and of its value.
  std::byte* key(uint32_t layer, size_t head, size_t slot) const {
    return k(layer) + layout_.k_offset(head, slot) * size_of(dtype_);
  }
  std::byte* value(uint32_t layer, size_t head, size_t slot) const {
    return k(layer) + (layout_.k_elements() + layout_.v_offset(head, slot)) * size_of(dtype_);
  }

 private:
  CpuKvCache(const kernels::KvLayout& layout, uint32_t capacity, DType dtype, AlignedBuffer data)
      : layout_(layout), capacity_(capacity), dtype_(dtype), data_(std::move(data)) {}
  static size_t size_of(DType dtype) { return static_cast<size_t>(dtype_size(dtype)); }

  kernels::KvLayout layout_;
  uint32_t capacity_;
  DType dtype_;
  AlignedBuffer data_;
};

}  // namespace blend::cpu
