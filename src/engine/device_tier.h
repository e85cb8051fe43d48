// DeviceTier: layers of chunks in the memory of the device, above host memory and disk: a fuse
// whose chunks are here loads nothing and copies nothing (AttentionStore 3.1 has the tiers below).
//
// It holds the layers that a reader staged, checked, in the form in which they came: packed rows
// stay packed. A chunk is known by its id, which binds model, tenant, prefix and tokens, and by the
// version of its bytes, so that a chunk put again under the id is never confused with the one
// before. A chunk that a store no longer has is not looked for here: the plan has found it
// missing.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <vector>

#include "backend/device_memory.h"
#include "base/threads/guarded.h"
#include "store/chunk/chunk.h"

namespace blend {

// Thread-safe. Never holds more than its budget; chunks that a fuse is reading at that moment stay.
class DeviceTier {
 public:
  struct Key {
    Sha256 id{};
    uint64_t version = 0;  // 0: not known, so not kept
    bool operator==(const Key&) const = default;
  };
  // A layer's rows in `memory`, as in StoredRun::kept.
  struct Layer {
    std::unique_ptr<DeviceBuffer> memory;
    std::vector<RowRun> rows;
  };
  using LayerRef = std::shared_ptr<const Layer>;
  // A chunk stays as long as a reference to it exists.
  struct Chunk {
    Key key;
    uint64_t bytes = 0;            // of all layers
    std::vector<LayerRef> layers;  // [n_layers]; null: not here. Guarded by the tier
  };
  using ChunkRef = std::shared_ptr<Chunk>;

  // `memory` must outlive it.
  DeviceTier(DeviceMemory& memory, uint64_t budget) : memory_(memory), budget_(budget) {}

  // Null: it is not here. Makes it the most recent.
  ChunkRef find(const Key& key);
  // An entry for a chunk of n_layers with layer_bytes each; evicts the chunks that were unused
  // longest. Null: the chunks in use leave too little room, which only costs a fuse speed; half
  // a chunk is not kept.
  ChunkRef admit(const Key& key, uint32_t n_layers, uint64_t layer_bytes);
  LayerRef layer(const ChunkRef& chunk, uint32_t layer);
  // Copies all rows of a staged layer to the device; they may change after a fence of the backend.
  // Null: there is no memory for them.
  LayerRef keep(const ChunkRef& chunk, uint32_t layer, const ChunkShape& shape,
                const std::vector<RowRun>& rows);
  // Memory that keep() takes for such a layer.
  static uint64_t bytes_of(const ChunkShape& shape, const std::vector<RowRun>& rows);

  uint64_t bytes() const;  // of the chunks here, including their missing layers

 private:
  struct Entry {
    ChunkRef chunk;
    std::list<Sha256>::iterator place;  // in order_
  };
  using Entries = std::map<Sha256, Entry>;
  void erase(Entries::iterator entry) BLEND_REQUIRES(mutex_);

  DeviceMemory& memory_;
  const uint64_t budget_;
  mutable Mutex mutex_;
  Entries entries_ BLEND_GUARDED_BY(mutex_);
  std::list<Sha256> order_ BLEND_GUARDED_BY(mutex_);  // oldest first
  uint64_t bytes_ BLEND_GUARDED_BY(mutex_) = 0;
};

}  // namespace blend
