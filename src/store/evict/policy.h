// EvictionPolicy: which chunk leaves the store first.
//
// An eviction walks the chunks from the oldest stamp on and asks the policy about each that it
// meets (victims.h); so a policy needs no list of chunks of its own, and an eviction costs the same
// whatever their number.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>

#include "base/hash.h"
#include "store/evict/use_record.h"

namespace blend {

enum class Eviction : uint8_t { lru, fifo, reuse, never };

// When a hinted chunk is needed.
struct Need {
  uint64_t distance = 0;   // its position in the hint
  bool in_window = false;  // evicted only for a chunk that is needed sooner (lmdb/prefetch/)
};

// Immutable: any thread.
class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;
  // Whether a hit gives the chunk a new stamp.
  virtual bool renewed_by_use() const = 0;
  // Whether the chunk gets a second chance: a new stamp instead of its eviction.
  virtual bool spares(const UseRecord& record) const = 0;
  // Empty: no hint names it.
  virtual std::optional<Need> need(const Sha256& id) const = 0;
};

// lru evicts the least recently used chunk, fifo the one that was put first. reuse is lru with
// second chances (generalized CLOCK): each halves the chunk's count of hits, and a chunk has them
// while that count is above one. So a scan over many chunks does not evict those that are used
// again and again.
std::shared_ptr<const EvictionPolicy> make_policy(Eviction kind);

// The chunks of a hint.
using NeedMap = std::unordered_map<Sha256, Need, Sha256Hash>;

// Chunks that no hint names are evicted first, in the order of `base`; then hinted ones, the one
// needed last first (AttentionStore 3.3.2, scheduler-aware eviction with a look-ahead
// window).
std::shared_ptr<const EvictionPolicy> make_hinted_policy(std::shared_ptr<const EvictionPolicy> base,
                                                         NeedMap needs);

}  // namespace blend
