// CpuKvCache: K and V of all layers, in f32, f16 or bf16, in the layout of kernels/cpu/kv_layout.h.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "backend/cpu/kv_memory.h"
#include "backend/cpu/scan_states.h"
#include "backend/kv_cache.h"
#include "cpu/kv_layout.h"
#include "model/config.h"

namespace blend::cpu {

// Concurrent calls may touch different layers or, in layers that attend, different slots in blocks
// of 16. Memory is not initialised: attention reads a slot only for a row at or after it.
class CpuKvCache final : public KvCache {
 public:
  static Result<std::unique_ptr<CpuKvCache>> create(const ModelConfig& config, uint32_t capacity,
                                                    DType dtype) {
    Places places;
    places.row_dim = config.mixer_row_dim();
    size_t bytes = 0;
    for (uint32_t i = 0; i < config.n_kept(); ++i) {
      const Heads heads = config.heads(i);
      kernels::KvLayout layout;
      layout.n_kv_heads = heads.n_kv;
      layout.head_dim = config.key_dim(i);
      layout.values_from = config.latent.rope;
      layout.slots = kernels::round_up(capacity, kernels::kSlotMultiple);
      places.at.push_back(bytes);
      places.layouts.push_back(layout);
      places.mixes.push_back(config.mixer.has(i));
      const size_t elements = config.mixer.has(i) ? layout.slots * places.row_dim
                                                  : layout.k_elements() + layout.v_elements();
      bytes += kernels::round_up(elements * size_of(dtype), kAlignment);
    }
    BLEND_ASSIGN(KvMemory memory, KvMemory::allocate(bytes));
    return std::unique_ptr<CpuKvCache>(
        new CpuKvCache(std::move(places), capacity, dtype, std::move(memory)));
  }

  uint32_t capacity() const override { return capacity_; }
  const kernels::KvLayout& layout(uint32_t layer) const { return places_.layouts[layer]; }
  size_t kv_dim(uint32_t layer) const { return layout(layer).kv_dim(); }
  DType dtype() const { return dtype_; }
  std::byte* k(uint32_t layer) const { return memory_.data() + places_.at[layer]; }
  // Element 0 of a slot's key (the next is kKeyBlock elements on), and of its value; null where
  // there are no values besides keys.
  std::byte* key(uint32_t layer, size_t head, size_t slot) const {
    return k(layer) + layout(layer).k_offset(head, slot) * size_of(dtype_);
  }
  std::byte* value(uint32_t layer, size_t head, size_t slot) const {
    const kernels::KvLayout& of = layout(layer);
    if (of.latent()) return nullptr;
    return k(layer) + (of.k_elements() + of.v_offset(head, slot)) * size_of(dtype_);
  }

  // Whether a layer keeps rows of another kind (RowMixer in model/config.h), and a slot's,
  // [row_dim].
  bool mixes(uint32_t layer) const { return places_.mixes[layer]; }
  size_t row_dim() const { return places_.row_dim; }
  std::byte* row(uint32_t layer, size_t slot) const {
    return k(layer) + slot * places_.row_dim * size_of(dtype_);
  }

  // What is derived from such a layer's rows; empty where nothing is.
  ScanStates& states(uint32_t layer) const { return states_[layer]; }

  // To be called by writers of a layer's slots from `first` on.
  void wrote(uint32_t layer, uint32_t first) {
    if (mixes(layer)) states_[layer].changed(first);
    if (!memory_.shares()) return;
    uint32_t clean = n_clean_.load(std::memory_order_relaxed);
    while (first < clean && !n_clean_.compare_exchange_weak(clean, first)) {
    }
  }

  Result<std::unique_ptr<KvCache>> fork(uint32_t n_rows) override {
    auto other = share(n_rows);
    if (other.is_ok()) return std::unique_ptr<KvCache>(std::move(*other));
    if (other.status().code() == BLEND_E_UNSUPPORTED) return std::unique_ptr<KvCache>();
    return other.status();
  }

 private:
  // fork() where there is memory that can be shared; UNSUPPORTED: there is none.
  Result<std::unique_ptr<CpuKvCache>> share(uint32_t n_rows) {
    // Where little is left to share, a new file is worth the copy.
    if (!memory_.shares() || n_clean_ < n_rows / 2) {
      BLEND_RETURN_IF_ERROR(memory_.share(ranges(0, n_rows)));
      n_clean_ = n_rows;
    }
    BLEND_ASSIGN(KvMemory memory, memory_.fork());
    const uint32_t clean = std::min(n_clean_.load(), n_rows);
    for (const KvMemory::Range& r : ranges(clean, n_rows)) {
      std::memcpy(memory.data() + r.first, memory_.data() + r.first, r.n);
    }
    std::unique_ptr<CpuKvCache> other(
        new CpuKvCache(places_, capacity_, dtype_, std::move(memory)));
    other->n_clean_ = clean;
    for (size_t layer = 0; layer < states_.size(); ++layer) {
      other->states_[layer].adopt(states_[layer], n_rows);
    }
    return other;
  }

  static constexpr size_t kAlignment = 64;
  // Where layers are.
  struct Places {
    std::vector<size_t> at;                  // [n_kept()] bytes
    std::vector<kernels::KvLayout> layouts;  // [n_kept()] where they attend
    std::vector<bool> mixes;  // [n_kept()]: whether it keeps rows of another kind than K | V
    size_t row_dim = 0;       // of those
  };

  CpuKvCache(Places places, uint32_t capacity, DType dtype, KvMemory memory)
      : places_(std::move(places)),
        capacity_(capacity),
        dtype_(dtype),
        memory_(std::move(memory)),
        states_(places_.at.size()) {}
  // The bytes of slots [first, last), and of those that lie in one key block with them.
  std::vector<KvMemory::Range> ranges(uint32_t first, uint32_t last) const {
    std::vector<KvMemory::Range> out;
    if (first >= last) return out;
    const size_t begin = first / kernels::kKeyBlock * kernels::kKeyBlock;
    const size_t end = kernels::round_up(last, kernels::kKeyBlock);
    for (uint32_t layer = 0; layer < places_.at.size(); ++layer) {
      if (mixes(layer)) {
        out.push_back({static_cast<size_t>(row(layer, begin) - memory_.data()),
                       (end - begin) * row_dim() * size_of(dtype_)});
        continue;
      }
      const kernels::KvLayout& of = layout(layer);
      const size_t k_bytes = (end - begin) * of.head_dim * size_of(dtype_);
      const size_t v_bytes = (end - begin) * of.v_stride() * size_of(dtype_);
      for (size_t head = 0; head < of.n_kv_heads; ++head) {
        out.push_back({static_cast<size_t>(key(layer, head, begin) - memory_.data()), k_bytes});
        if (of.latent()) continue;
        out.push_back({static_cast<size_t>(value(layer, head, begin) - memory_.data()), v_bytes});
      }
    }
    return out;
  }
  static size_t size_of(DType dtype) { return static_cast<size_t>(dtype_size(dtype)); }

  Places places_;
  uint32_t capacity_;
  DType dtype_;
  KvMemory memory_;
  mutable std::vector<ScanStates> states_;  // [n_kept()]
  std::atomic<uint32_t> n_clean_{0};        // of shared memory: slots not written to since
};

}  // namespace blend::cpu
