#include "store/ram/ram_tier.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <new>
#include <utility>

namespace blend {

std::shared_ptr<std::byte> RamTier::allocate(size_t bytes) const {
  if (memory_) return memory_(bytes);
  auto buffer = AlignedBuffer::allocate(bytes);
  if (!buffer.is_ok()) return nullptr;
  const auto owner = std::make_shared<AlignedBuffer>(std::move(*buffer));
  return {owner, owner->data()};
}

bool RamTier::put_foreign(const Key& key, const ChunkShape& shape, uint32_t layer,
                          const Layer& bytes) {
  if (!hands_on()) return put(key, shape, layer, bytes);
  const std::shared_ptr<std::byte> own = allocate(shape.layer_bytes(layer));
  if (own == nullptr) return false;
  std::memcpy(own.get(), bytes.get(), shape.layer_bytes(layer));
  return put(key, shape, layer, own);
}

bool RamTier::complete(const Key& key) const {
  const MutexLock lock(mutex_);
  const auto found = entries_.find(key.id);
  return found != entries_.end() && found->second.version == key.version &&
         found->second.n_present == found->second.layers.size();
}

RamTier::Layer RamTier::find(const Key& key, uint32_t layer) {
  const MutexLock lock(mutex_);
  const auto found = entries_.find(key.id);
  if (found == entries_.end()) return nullptr;
  if (found->second.version != key.version) {
    erase(found);  // replaced since
    return nullptr;
  }
  if (layer >= found->second.layers.size()) return nullptr;
  order_.splice(order_.end(), order_, found->second.place);
  return found->second.layers[layer];
}

bool RamTier::put(const Key& key, const ChunkShape& shape, uint32_t layer, Layer bytes) {
  const MutexLock lock(mutex_);
  auto found = entries_.find(key.id);
  if (found != entries_.end() && found->second.version != key.version) {
    erase(found);
    found = entries_.end();
  }
  if (layer >= shape.n_layers) return false;
  if (found != entries_.end() && found->second.layers[layer] != nullptr) return true;
  const uint64_t size = shape.layer_bytes(layer);
  // A part of a chunk saves little: one that cannot fit as a whole is not begun.
  if (shape.total_bytes() > budget_ || !make_room(size, key.id)) return false;
  if (found == entries_.end()) {
    Entry entry;
    entry.version = key.version;
    entry.layers.resize(shape.n_layers);
    entry.place = order_.insert(order_.end(), key.id);
    try {
      found = entries_.emplace(key.id, std::move(entry)).first;
    } catch (...) {
      order_.pop_back();
      throw;
    }
  }
  Entry& entry = found->second;
  entry.layers[layer] = std::move(bytes);
  entry.bytes += size;
  ++entry.n_present;
  bytes_ += size;
  return true;
}

void RamTier::drop(const Sha256& id) {
  const MutexLock lock(mutex_);
  if (const auto found = entries_.find(id); found != entries_.end()) erase(found);
}

void RamTier::want(std::span<const Sha256> ids) {
  const MutexLock lock(mutex_);
  wanted_.clear();
  for (const Sha256& id : ids) wanted_.emplace(id, wanted_.size());
}

RamTier::Stat RamTier::stat() const {
  const MutexLock lock(mutex_);
  return {bytes_, entries_.size()};
}

void RamTier::erase(Entries::iterator entry) {
  bytes_ -= entry->second.bytes;
  order_.erase(entry->second.place);
  entries_.erase(entry);
}

uint64_t RamTier::rank(const Sha256& id) const {
  const auto found = wanted_.find(id);
  return found == wanted_.end() ? std::numeric_limits<uint64_t>::max() : found->second;
}

bool RamTier::make_room(uint64_t bytes, const Sha256& newcomer) {
  if (bytes > budget_) return false;
  for (auto at = order_.begin(); bytes_ > budget_ - bytes && at != order_.end();) {
    const Sha256 id = *at++;
    if (id != newcomer && rank(id) == std::numeric_limits<uint64_t>::max()) {
      erase(entries_.find(id));
    }
  }
  // Only hinted chunks are left: those that are needed after the newcomer go, the last first.
  while (bytes_ > budget_ - bytes) {
    auto last = order_.end();
    for (auto at = order_.begin(); at != order_.end(); ++at) {
      if (*at != newcomer && (last == order_.end() || rank(*at) > rank(*last))) last = at;
    }
    if (last == order_.end() || rank(*last) <= rank(newcomer)) return false;
    erase(entries_.find(*last));
  }
  return true;
}

namespace {

// Copies rows of a layer to one block, in stored order.
void gather(const std::vector<RowRun>& rows, const ChunkShape& shape, uint32_t layer,
            std::byte* out) {
  const size_t row_bytes = shape.row_bytes(layer);
  for (const RowRun& run : rows) {
    std::memcpy(out + run.first * row_bytes, run.k, run.n * row_bytes);
    std::memcpy(out + shape.plane_bytes(layer) + run.first * row_bytes, run.v, run.n * row_bytes);
  }
}

class RamSource final : public ChunkSource {
 public:
  RamSource(std::unique_ptr<ChunkSource> disk, std::shared_ptr<RamTier> tier,
            const RamTier::Key& key)
      : disk_(std::move(disk)),
        tier_(std::move(tier)),
        key_(key),
        origin_(tier_->complete(key_) ? Origin::memory : disk_->origin()) {}

  const ChunkMeta& meta() const override { return disk_->meta(); }
  Origin origin() const override { return origin_; }
  size_t stage_bytes() const override { return disk_->stage_bytes(); }
  uint64_t version() const override { return key_.version; }

  void prefetch(uint32_t layer) override {
    if (tier_->find(key_, layer) == nullptr) disk_->prefetch(layer);
  }

  Status read_layer(uint32_t layer, std::byte* out) override {
    if (copy_kept(tier_->find(key_, layer), layer, out)) return Status::ok();
    BLEND_RETURN_IF_ERROR(disk_->read_layer(layer, out));
    keep(layer, [&](std::byte* to) { std::memcpy(to, out, shape().layer_bytes(layer)); });
    return Status::ok();
  }

  void start_layer(uint32_t layer, std::byte* space) override {
    handed_on_.erase(space);  // no longer read
    if (RamTier::Layer kept = tier_->find(key_, layer); kept != nullptr) {
      started_[layer] = std::move(kept);  // or the tier could drop it before it is finished
    } else {
      disk_->start_layer(layer, space);
    }
  }

  Status finish_layer(uint32_t layer, std::byte* space, std::vector<RowRun>& rows) override {
    const auto found = started_.find(layer);
    const RamTier::Layer kept = found == started_.end() ? nullptr : found->second;
    if (found != started_.end()) started_.erase(found);
    if (kept != nullptr && tier_->hands_on()) {
      origin_ = Origin::memory;
      rows.assign(1, {kept.get(), kept.get() + shape().plane_bytes(layer), 0, shape().rows(layer)});
      handed_on_[space] = kept;
      return Status::ok();
    }
    if (copy_kept(kept, layer, space)) {
      rows.assign(1, {space, space + shape().plane_bytes(layer), 0, shape().rows(layer)});
      return Status::ok();
    }
    BLEND_RETURN_IF_ERROR(disk_->finish_layer(layer, space, rows));
    keep(layer, [&](std::byte* to) { gather(rows, shape(), layer, to); });
    return Status::ok();
  }

  void abandon() override {
    started_.clear();
    disk_->abandon();
  }

 private:
  const ChunkShape& shape() const { return disk_->meta().shape; }

  bool copy_kept(const RamTier::Layer& kept, uint32_t layer, std::byte* out) {
    origin_ = kept != nullptr ? Origin::memory : disk_->origin();
    if (kept != nullptr) std::memcpy(out, kept.get(), shape().layer_bytes(layer));
    return kept != nullptr;
  }

  // fill(memory): writes the layer there.
  template <typename Fill>
  void keep(uint32_t layer, const Fill& fill) {
    if (shape().total_bytes() > tier_->budget()) return;
    try {
      const std::shared_ptr<std::byte> memory = tier_->allocate(shape().layer_bytes(layer));
      if (memory == nullptr) return;
      fill(memory.get());
      tier_->put(key_, shape(), layer, memory);
    } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): the tier is best effort
    }
  }

  const std::unique_ptr<ChunkSource> disk_;
  const std::shared_ptr<RamTier> tier_;
  const RamTier::Key key_;
  std::map<uint32_t, RamTier::Layer> started_;
  // Layers whose rows were returned in place, by the space of their layer: until that is used
  // again.
  std::map<const std::byte*, RamTier::Layer> handed_on_;
  Origin origin_;
};

}  // namespace

std::unique_ptr<ChunkSource> make_ram_source(std::unique_ptr<ChunkSource> disk,
                                             std::shared_ptr<RamTier> tier,
                                             const RamTier::Key& key) {
  return std::make_unique<RamSource>(std::move(disk), std::move(tier), key);
}

}  // namespace blend
