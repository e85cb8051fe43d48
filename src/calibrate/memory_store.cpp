#include "calibrate/memory_store.h"

#include <cstring>

namespace blend {
namespace {

class Snapshot final : public StoreSnapshot {
 public:
  explicit Snapshot(const MemoryStore& store) : store_(store) {}
  Result<bool> holds(const Sha256& id) override { return store_.find(id) != nullptr; }

 private:
  Result<std::unique_ptr<ChunkSource>> open_of(const Sha256& id, const TenantTag* tenant) override {
    auto record = store_.find(id);
    if (record == nullptr || (tenant != nullptr && record->meta.tenant != *tenant)) {
      return Status{BLEND_E_NOT_FOUND, "no such chunk"};
    }
    return make_memory_source(std::move(record));
  }

  const MemoryStore& store_;
};

}  // namespace

std::shared_ptr<const ChunkRecord> MemoryStore::find(const Sha256& id) const {
  const MutexLock lock(mutex_);
  const auto it = chunks_.find(id);
  return it == chunks_.end() ? nullptr : it->second;
}

std::vector<std::shared_ptr<const ChunkRecord>> MemoryStore::records() const {
  const MutexLock lock(mutex_);
  std::vector<std::shared_ptr<const ChunkRecord>> out;
  out.reserve(chunks_.size());
  for (const auto& [id, record] : chunks_) out.push_back(record);
  return out;
}

Result<std::unique_ptr<StoreSnapshot>> MemoryStore::snapshot() {
  return std::unique_ptr<StoreSnapshot>(std::make_unique<Snapshot>(*this));
}

Result<bool> MemoryStore::contains(const Sha256& id) { return find(id) != nullptr; }

Status MemoryStore::put(const ChunkRecord& record) {
  auto copy = std::make_shared<ChunkRecord>();
  copy->meta = record.meta;
  BLEND_ASSIGN(copy->data, AlignedBuffer::allocate(record.data.bytes()));
  std::memcpy(copy->data.data(), record.data.data(), record.data.bytes());
  return put_async(std::move(copy));
}

Status MemoryStore::put_async(std::shared_ptr<const ChunkRecord> record) {
  const MutexLock lock(mutex_);
  const Sha256 id = record->meta.id;
  chunks_[id] = std::move(record);
  return Status::ok();
}

void MemoryStore::clear() {
  const MutexLock lock(mutex_);
  chunks_.clear();
}

}  // namespace blend
