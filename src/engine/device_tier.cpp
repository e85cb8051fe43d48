#include "engine/device_tier.h"

#include <algorithm>
#include <utility>

namespace blend {
namespace {

constexpr size_t kAlignment = 256;  // of every plane

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Size of a kept layer, and where its V begins: whole planes, packed or row after row.
struct Layout {
  size_t v_at = 0, bytes = 0;
};
Layout layout_of(const ChunkShape& shape, uint32_t layer, const std::vector<RowRun>& rows) {
  const PackedPlanes& packed = rows.front().packed;
  const bool plain = packed.packing == Packing::none;
  const size_t v_at = aligned(plain ? shape.plane_bytes(layer) : packed.k_bytes);
  return {v_at, v_at + aligned(plain ? shape.plane_bytes(layer) : packed.v_bytes)};
}

}  // namespace

DeviceTier::ChunkRef DeviceTier::find(const Key& key) {
  if (key.version == 0) return nullptr;
  const MutexLock lock(mutex_);
  const auto found = entries_.find(key.id);
  if (found == entries_.end()) return nullptr;
  if (!(found->second.chunk->key == key)) {
    erase(found);  // replaced since
    return nullptr;
  }
  order_.splice(order_.end(), order_, found->second.place);
  return found->second.chunk;
}

DeviceTier::ChunkRef DeviceTier::admit(const Key& key, uint32_t n_layers, uint64_t layer_bytes) {
  if (key.version == 0 || layer_bytes > budget_ / std::max(n_layers, 1u)) return nullptr;
  if (ChunkRef there = find(key); there != nullptr) return there;
  auto chunk = std::make_shared<Chunk>();
  chunk->key = key;
  chunk->bytes = n_layers * layer_bytes;
  chunk->layers.resize(n_layers);
  std::vector<ChunkRef> dropped;  // freed without the lock
  const MutexLock lock(mutex_);
  for (auto at = order_.begin(); bytes_ > budget_ - chunk->bytes && at != order_.end();) {
    const auto entry = entries_.find(*at++);
    if (entry->second.chunk.use_count() > 1) continue;
    dropped.push_back(entry->second.chunk);
    erase(entry);
  }
  if (bytes_ > budget_ - chunk->bytes) return nullptr;
  const auto place = order_.insert(order_.end(), key.id);
  bool is_new = false;
  try {
    is_new = entries_.emplace(key.id, Entry{chunk, place}).second;
  } catch (...) {
    order_.erase(place);
    throw;
  }
  if (!is_new) {  // another fuse was faster
    order_.erase(place);
    return nullptr;
  }
  bytes_ += chunk->bytes;
  return chunk;
}

DeviceTier::LayerRef DeviceTier::layer(const ChunkRef& chunk, uint32_t layer) {
  const MutexLock lock(mutex_);
  return chunk->layers[layer];
}

uint64_t DeviceTier::bytes_of(const ChunkShape& shape, const std::vector<RowRun>& rows) {
  // A chunk whose layers differ is not kept here: no device computes such models yet.
  return layout_of(shape, 0, rows).bytes;
}

DeviceTier::LayerRef DeviceTier::keep(const ChunkRef& chunk, uint32_t layer,
                                      const ChunkShape& shape, const std::vector<RowRun>& rows) {
  const Layout layout = layout_of(shape, layer, rows);
  // A layer that was packed when its chunk was admitted may come decoded, from host memory.
  if (layout.bytes > chunk->bytes / chunk->layers.size()) return nullptr;
  const PackedPlanes& packed = rows.front().packed;
  std::vector<KeptPart> parts;
  if (packed.packing != Packing::none) {
    parts = {{rows.front().k, packed.k_bytes, 0}, {rows.front().v, packed.v_bytes, layout.v_at}};
  } else {
    const size_t row_bytes = shape.row_bytes(layer);
    for (const RowRun& run : rows) {
      parts.push_back({run.k, run.n * row_bytes, run.first * row_bytes});
      parts.push_back({run.v, run.n * row_bytes, layout.v_at + run.first * row_bytes});
    }
  }
  auto memory = memory_.keep(layout.bytes, parts);
  if (!memory.is_ok()) {
    const MutexLock lock(mutex_);
    const auto found = entries_.find(chunk->key.id);
    if (found != entries_.end() && found->second.chunk == chunk) erase(found);
    return nullptr;
  }
  const auto* const base = static_cast<const std::byte*>(memory.value()->data());
  auto kept = std::make_shared<Layer>();
  kept->rows = {{base, base + layout.v_at, 0, shape.n_tokens, packed}};
  kept->memory = std::move(memory.value());
  const MutexLock lock(mutex_);
  LayerRef& place = chunk->layers[layer];
  if (place == nullptr) place = std::move(kept);  // another fuse may have been faster
  return place;
}

uint64_t DeviceTier::bytes() const {
  const MutexLock lock(mutex_);
  return bytes_;
}

void DeviceTier::erase(Entries::iterator entry) {
  bytes_ -= entry->second.chunk->bytes;
  order_.erase(entry->second.place);
  entries_.erase(entry);
}

}  // namespace blend
