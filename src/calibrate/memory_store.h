// MemoryStore: a chunk store for the time in which one sample prompt is measured.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "base/threads/guarded.h"
#include "store/chunk_store.h"

namespace blend {

// Thread-safe. Keeps chunks until clear().
class MemoryStore final : public ChunkStore {
 public:
  Result<std::unique_ptr<StoreSnapshot>> snapshot() override;
  Result<bool> contains(const Sha256& id) override;
  Status put(const ChunkRecord& record) override;
  Status put_async(std::shared_ptr<const ChunkRecord> record) override;
  void report_damage(const Sha256&, const Status&) override {}  // memory is not checked
  void clear();

  // NULL: not there.
  std::shared_ptr<const ChunkRecord> find(const Sha256& id) const;
  // All of them, in the order of their ids.
  std::vector<std::shared_ptr<const ChunkRecord>> records() const;

 private:
  mutable Mutex mutex_;
  std::map<Sha256, std::shared_ptr<const ChunkRecord>> chunks_ BLEND_GUARDED_BY(mutex_);
};

}  // namespace blend
