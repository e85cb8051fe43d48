// VictimChooser: chooses the chunks that an eviction removes.
//
// The store offers its chunks from the oldest stamp on, and carries out the choice: which chunks
// go, and which get a new stamp instead of being evicted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/hash.h"
#include "store/evict/policy.h"
#include "store/evict/touches.h"
#include "store/evict/use_record.h"

namespace blend {

// A new stamp for a chunk: its position in the eviction order changes.
struct Restamp {
  Sha256 id{};
  UseRecord old;
  uint64_t stamp_us = 0;
  uint32_t uses = 0;
};
// The new stamp and count from hits that the chunk's record does not have yet. Empty: none.
std::optional<Restamp> renewal(const Touches& touches, const Sha256& id, const UseRecord& record);

// For one eviction, by one thread.
class VictimChooser {
 public:
  struct Chunk {
    Sha256 id{};
    UseRecord record;
  };

  // excess: bytes to be freed. most: victims at most. newcomer: when the chunk that needs the space
  // is itself needed. `policy` and `touches` must outlive it.
  VictimChooser(const EvictionPolicy& policy, const Touches& touches, uint64_t excess, size_t most,
                std::optional<Need> newcomer)
      : policy_(policy), touches_(touches), excess_(excess), most_(most), newcomer_(newcomer) {}

  // Whether no more chunks need be offered.
  bool done() const { return frees_enough() || victims_.size() >= most_; }
  void offer(const Sha256& id, const UseRecord& record);
  // Once, after the last offer. The results below are complete then.
  void choose();

  const std::vector<Chunk>& victims() const { return victims_; }
  const std::vector<Restamp>& restamps() const { return restamps_; }
  bool frees_enough() const { return freed_ >= excess_; }
  uint64_t hinted_bytes() const { return hinted_bytes_; }  // of hinted chunks that stay

 private:
  struct Hinted {
    Chunk chunk;
    Need need;
  };
  void take(const Chunk& chunk) {
    freed_ += chunk.record.footprint;
    victims_.push_back(chunk);
  }

  const EvictionPolicy& policy_;
  const Touches& touches_;
  const uint64_t excess_;
  const size_t most_;
  const std::optional<Need> newcomer_;
  std::vector<Chunk> spared_;     // by a second chance
  std::vector<Restamp> renewed_;  // by hits that their records do not have yet
  std::vector<Hinted> hinted_;
  std::vector<Chunk> victims_;
  std::vector<Restamp> restamps_;
  uint64_t freed_ = 0;
  uint64_t hinted_bytes_ = 0;
};

}  // namespace blend
