#include "engine/tempered_rows.h"

#include <algorithm>

namespace blend {

void TemperedRows::add(uint32_t row, uint32_t layer) {
  if (row >= from_layer_.size()) from_layer_.resize(row + size_t{1}, kNever);
  if (from_layer_[row] != kNever) return;
  from_layer_[row] = layer;
  ++n_rows_;
}

Tempering TemperedRows::at(uint32_t layer, uint32_t n_slots) {
  slots_.assign(n_slots, 0);
  bool any = false;
  for (size_t i = 0; i < std::min<size_t>(n_slots, from_layer_.size()); ++i) {
    if (from_layer_[i] > layer) continue;
    slots_[i] = 1;
    any = true;
  }
  return {any ? slots_.data() : nullptr, temperature_, scale_};
}

void TemperedRows::replace(uint64_t first, uint64_t n_old, uint64_t n_new) {
  const uint64_t n = from_layer_.size();
  if (first >= n) return;
  const auto at = from_layer_.begin() + static_cast<int64_t>(first);
  const auto end = from_layer_.begin() + static_cast<int64_t>(std::min(n, first + n_old));
  n_rows_ -= static_cast<uint64_t>(std::count_if(at, end, [](uint32_t l) { return l != kNever; }));
  from_layer_.insert(from_layer_.erase(at, end), n_new, kNever);
}

}  // namespace blend
