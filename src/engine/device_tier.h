// DeviceTier: layers of chunks in the memory of the device, above host memory and disk: a fuse
// whose chunks are here loads nothing and copies nothing (AttentionStore 3.1 has the tiers below).
//
// It holds what a reader staged, checked, in the form in which it came over: packed rows stay
// packed. A chunk is known by its id, which binds model, tenant, prefix and tokens, and by the
// version of its bytes, so that what was put anew under the id is never confused with what was
// there before. A chunk that a store no longer has is not looked for here: the plan has found it
// missing.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "backend/backend.h"
#include "store/chunk.h"

namespace blend {

// Thread-safe. Never holds more than its budget; chunks that a fuse is reading at that moment stay.
class DeviceTier {
 public:
  struct Key {
    Sha256 id{};
    uint64_t version = 0;  // 0: not known, and not kept
    bool operator==(const Key&) const = default;
  };
  // A layer's rows in `memory`, as StoredRun::kept has them.
  struct Layer {
    std::unique_ptr<DeviceBuffer> memory;
    std::vector<RowRun> rows;
  };
  using LayerRef = std::shared_ptr<const Layer>;
  // A chunk that stays as long as somebody holds it.
  struct Chunk {
    Key key;
    uint64_t bytes = 0;            // of all layers
    std::vector<LayerRef> layers;  // [n_layers]; null: not here. Guarded by the tier
  };
  using ChunkRef = std::shared_ptr<Chunk>;

  // `backend` must outlive it.
  DeviceTier(Backend& backend, uint64_t budget) : backend_(backend), budget_(budget) {}

  // Null: it is not here. Makes it the youngest.
  ChunkRef find(const Key& key);
  // A place for a chunk of n_layers with layer_bytes each, made by dropping the chunks that were
  // unused longest. Null: those that are in use leave no room, which costs a fuse nothing but
  // speed; half a chunk is not kept.
  ChunkRef admit(const Key& key, uint32_t n_layers, uint64_t layer_bytes);
  LayerRef layer(const ChunkRef& chunk, uint32_t layer);
  // Copies all rows of a staged layer to the device; they may change behind a fence of the backend.
  // Null: there is no memory for them.
  LayerRef keep(const ChunkRef& chunk, uint32_t layer, const ChunkShape& shape,
                const std::vector<RowRun>& rows);
  // What keep() takes for such a layer.
  static uint64_t bytes_of(const ChunkShape& shape, const std::vector<RowRun>& rows);

  uint64_t bytes() const;  // of the chunks that are here, with room for their missing layers

 private:
  struct Entry {
    ChunkRef chunk;
    std::list<Sha256>::iterator place;  // in order_
  };
  using Entries = std::map<Sha256, Entry>;
  void erase(Entries::iterator entry);  // mutex_ held

  Backend& backend_;
  const uint64_t budget_;
  mutable std::mutex mutex_;
  Entries entries_;          // guarded by mutex_
  std::list<Sha256> order_;  // oldest first; guarded by mutex_
  uint64_t bytes_ = 0;       // guarded by mutex_
};

}  // namespace blend
