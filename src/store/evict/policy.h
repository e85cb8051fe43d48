// EvictionPolicy: which chunk leaves the store first.
//
// The store walks its chunks from the oldest stamp on (use_index.h) and asks the policy about each
// that it meets; so a policy needs no list of chunks of its own, and an eviction costs the same
// whatever their number.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>

#include "store/evict/use_record.h"
#include "store/write_back.h"

namespace blend {

enum class Eviction : uint8_t { lru, fifo, reuse, never };

// When a chunk is needed next.
struct Need {
  uint64_t distance = 0;  // its place in the queue of coming needs
  bool in_window =
      false;  // of what the store can hold for the queue: not given up for the unneeded
};

// Immutable: any thread.
class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;
  // Does a hit give the chunk a new stamp?
  virtual bool renewed_by_use() const = 0;
  // Does the chunk get a new stamp, once more, in place of being evicted?
  virtual bool spares(const UseRecord& record) const = 0;
  // Nothing: nobody has said that it will be needed.
  virtual std::optional<Need> need(const Sha256& id) const = 0;
};

// lru: the chunk that was unused longest. fifo: the one that was put first. reuse: lru, and a chunk
// that was hit more than once gets another chance for every halving of its count (a generalised
// clock), so that one pass over many chunks does not push out what is used again and again.
std::shared_ptr<const EvictionPolicy> make_policy(Eviction kind);

// The coming needs, as ordered by a scheduler's queue.
using NeedMap = std::unordered_map<Sha256, Need, Sha256Hash>;

// `base` among the chunks that nobody has asked for; these go first, then what is needed last
// (AttentionStore 3.3.2, scheduler-aware eviction with its look-ahead window).
std::shared_ptr<const EvictionPolicy> make_hinted_policy(std::shared_ptr<const EvictionPolicy> base,
                                                         NeedMap needs);

}  // namespace blend
