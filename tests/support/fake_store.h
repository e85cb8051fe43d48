// FakeStore: a chunk store in memory that can pretend to be full or damaged.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <vector>

#include "store/chunk_store.h"

namespace blend::test {

// Not thread-safe, but where it says so.
class FakeStore : public ChunkStore {
 public:
  class Snapshot : public StoreSnapshot {
   public:
    explicit Snapshot(FakeStore& store) : store_(store) { ++store_.snapshots; }
    ~Snapshot() override { --store_.snapshots; }
    Snapshot(const Snapshot&) = delete;
    Snapshot& operator=(const Snapshot&) = delete;
    Result<bool> holds(const Sha256& id) override { return store_.chunks.count(id) > 0; }

   private:
    Result<std::unique_ptr<ChunkSource>> open_of(const Sha256& id,
                                                 const TenantTag* tenant) override {
      const auto it = store_.chunks.find(id);
      const bool there = it != store_.chunks.end();
      if (!there || (tenant != nullptr && it->second->meta.tenant != *tenant)) {
        return Status{BLEND_E_NOT_FOUND, "no such chunk"};
      }
      return make_memory_source(it->second);
    }

    FakeStore& store_;
  };
  Result<std::unique_ptr<StoreSnapshot>> snapshot() override {
    return std::unique_ptr<StoreSnapshot>(new Snapshot(*this));
  }
  Result<bool> contains(const Sha256& id) override {
    ++looks;
    if (one_snapshot && snapshots > 0) return Status{BLEND_E_IO, "a snapshot is in the way"};
    return chunks.count(id) > 0;
  }
  Status put(const ChunkRecord&) override { return {BLEND_E_INTERNAL, "not used here"}; }
  Status put_async(std::shared_ptr<const ChunkRecord> record) override {
    ++puts;
    order.push_back(record->meta.id);
    if (record->meta.draft) drafts[record->meta.id] = record;
    chunks[record->meta.id] = record;
    return put_status;
  }
  void report_damage(const Sha256&, const Status&) override { ++damaged; }

  std::map<Sha256, std::shared_ptr<const ChunkRecord>> chunks;
  std::map<Sha256, std::shared_ptr<const ChunkRecord>> drafts;  // though they were replaced
  bool one_snapshot = false;  // contains() fails while there is one: LMDB, whose file was enlarged
  std::atomic<int> snapshots{0};
  Status put_status;
  int puts = 0;
  std::vector<Sha256> order;  // of the puts
  int damaged = 0;
  std::atomic<int> looks{0};  // contains() was asked; from any thread
};

}  // namespace blend::test
