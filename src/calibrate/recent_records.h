// RecentRecords: chunks in memory, up to a number of bytes.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>

#include "base/hash.h"
#include "store/chunk_store.h"

namespace blend {

// Used by one thread.
class RecentRecords {
 public:
  using Record = std::shared_ptr<const ChunkRecord>;

  explicit RecentRecords(uint64_t budget) : budget_(budget) {}

  // Null: it is not here. A hit makes the record the most recently used.
  Record find(const Sha256& id);
  // The least recently used ones leave until the rest fits. One that is here already, or is larger
  // than the budget, is not kept. May throw bad_alloc.
  void put(Record record);

 private:
  const uint64_t budget_;
  uint64_t bytes_ = 0;
  std::list<Record> order_;  // the most recently used first
  std::map<Sha256, std::list<Record>::iterator> places_;
};

}  // namespace blend
