// RamTier: layers of chunks in host memory, above the data file (AttentionStore 3.1, the tier that
// hides the disk).
//
// It holds layers that were read, checked and decoded, or just written, so a hit costs a copy: no
// page faults, no checksum, no decoding. A chunk is known by its id and by the checksums that the
// store's manifest has for it, so a chunk that another process replaced or removed is never served.
//
// Where a device reads its memory itself, a hit costs not even a copy: the rows are returned in
// place.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/hash.h"
#include "base/threads/guarded.h"
#include "store/chunk/chunk.h"
#include "store/ram/host_memory.h"

namespace blend {

// Thread-safe. Never holds more than its budget, but for dropped layers that a reader is copying.
class RamTier {
 public:
  struct Key {
    Sha256 id{};
    uint64_t version = 0;  // of its bytes
    bool operator==(const Key&) const = default;
  };
  using Layer = std::shared_ptr<const std::byte>;  // layer_bytes() of them

  // Its layers are in memory that `memory` allocates, where that is not empty.
  explicit RamTier(uint64_t budget, HostMemory memory = {})
      : budget_(budget), memory_(std::move(memory)) {}

  uint64_t budget() const { return budget_; }
  // Whether rows are returned in place.
  bool hands_on() const { return memory_ != nullptr; }
  // Memory for a layer to be put(); null: there is none. May throw bad_alloc.
  std::shared_ptr<std::byte> allocate(size_t bytes) const;
  // Every layer is here.
  bool complete(const Key& key) const;
  // Null: it is not here. A hit makes the chunk the most recently used.
  Layer find(const Key& key, uint32_t layer);
  // Makes room by dropping least recently used chunks that no hint names, then hinted ones that are
  // needed later than this one. False: there is no room; the layer is not kept. `bytes`: from
  // allocate(), or any where not hands_on().
  bool put(const Key& key, const ChunkShape& shape, uint32_t layer, Layer bytes);
  // The same for bytes of other memory: referenced, or, if hands_on(), copied.
  bool put_foreign(const Key& key, const ChunkShape& shape, uint32_t layer, const Layer& bytes);
  void drop(const Sha256& id);

  // The hinted chunks, the one needed first in front: each is dropped only for one that is
  // needed sooner. Replaces the last list.
  void want(std::span<const Sha256> ids);

  struct Stat {
    uint64_t bytes = 0;
    uint64_t n_chunks = 0;
  };
  Stat stat() const;

 private:
  struct Entry {
    uint64_t version = 0;
    std::vector<Layer> layers;  // [n_layers]; null: not here
    uint32_t n_present = 0;
    uint64_t bytes = 0;
    std::list<Sha256>::iterator place;  // in order_
  };
  using Entries = std::unordered_map<Sha256, Entry, Sha256Hash>;

  void erase(Entries::iterator entry) BLEND_REQUIRES(mutex_);
  bool make_room(uint64_t bytes, const Sha256& newcomer) BLEND_REQUIRES(mutex_);
  // In the hint; the largest number: not in it.
  uint64_t rank(const Sha256& id) const BLEND_REQUIRES(mutex_);

  const uint64_t budget_;
  const HostMemory memory_;
  mutable Mutex mutex_;
  Entries entries_ BLEND_GUARDED_BY(mutex_);
  std::list<Sha256> order_ BLEND_GUARDED_BY(mutex_);  // oldest first
  std::unordered_map<Sha256, uint64_t, Sha256Hash> wanted_ BLEND_GUARDED_BY(mutex_);
  uint64_t bytes_ BLEND_GUARDED_BY(mutex_) = 0;
};

// `disk`, with the layers that the tier has taken from there; layers read from the disk are kept.
std::unique_ptr<ChunkSource> make_ram_source(std::unique_ptr<ChunkSource> disk,
                                             std::shared_ptr<RamTier> tier,
                                             const RamTier::Key& key);

}  // namespace blend
