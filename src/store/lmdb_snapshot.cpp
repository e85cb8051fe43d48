#include "store/lmdb_snapshot.h"

#include <algorithm>
#include <new>

#include "store/lmdb_source.h"

namespace blend {

PieceKey::PieceKey(const Sha256& id, uint32_t piece) {
  std::copy(id.begin(), id.end(), bytes.begin());
  for (size_t i = 0; i < 4; ++i) bytes[32 + i] = static_cast<uint8_t>(piece >> (24 - 8 * i));
}

Result<Manifest> read_manifest(const Txn& txn, const MapView& view, const Sha256& id) {
  MDB_val key = id_val(id);
  MDB_val value{};
  const int rc = mdb_get(txn.get(), txn.env().meta(), &key, &value);
  if (rc == MDB_NOTFOUND) {
    return make_error(BLEND_E_NOT_FOUND, "chunk %s is not in the store", to_hex(id).c_str());
  }
  if (rc != 0) return lmdb_error(rc, "chunk " + to_hex(id));
  if (!view.contains(to_span(value))) {
    return make_error(BLEND_E_CORRUPT, "the description of chunk %s lies outside the data file",
                      to_hex(id).c_str());
  }
  return decode_manifest(to_span(value), id);
}

bool StoreCommon::expired(const UseIndex& index, const Sha256& id) const {
  if (ttl_us == 0) return false;
  const auto use = index.find(id);
  if (!use.has_value() || use->pinned) return false;
  const uint64_t stamp = std::max(use->stamp_us, touches.find(id).stamp_us);
  return next_stamp_us() > stamp + ttl_us;
}

void StoreCommon::used(const Sha256& id) noexcept {
  if (!notes_use) return;
  bool told = false;
  try {
    if (!touches.add(id, next_stamp_us())) return;
    told = write_touches_soon && write_touches_soon();
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): advice for evictions
  }
  if (!told) touches.tell_again();
}

Result<std::unique_ptr<ChunkSource>> LmdbSnapshot::open(const Sha256& id) {
  BLEND_RETURN_IF_ERROR(common_->env->check_fork());
  if (const auto it = pending_.find(id); it != pending_.end()) {
    common_->hits.fetch_add(1, std::memory_order_relaxed);
    common_->ram_hits.fetch_add(1, std::memory_order_relaxed);
    return make_memory_source(it->second);
  }
  Result<Manifest> manifest = [&] {
    const std::lock_guard lock(mutex_);
    Result<Manifest> found = read_manifest(txn_, view_, id);
    if (found.is_ok() && common_->expired(UseIndex(txn_), id)) {
      return Result<Manifest>(make_error(BLEND_E_NOT_FOUND, "chunk %s has expired: nobody used it",
                                         to_hex(id).c_str()));
    }
    return found;
  }();
  if (!manifest.is_ok()) {
    common_->misses.fetch_add(1, std::memory_order_relaxed);
    if (manifest.status().code() != BLEND_E_NOT_FOUND) common_->damage(manifest.status());
    return manifest.status();
  }
  common_->hits.fetch_add(1, std::memory_order_relaxed);
  common_->used(id);
  const std::shared_ptr<RamTier>& ram = common_->ram;
  const RamTier::Key key = ram != nullptr ? ram_key(*manifest) : RamTier::Key{};
  std::unique_ptr<ChunkSource> disk =
      std::make_unique<LmdbSource>(txn_, view_, mutex_, common_->reader.get(), common_->cache_first,
                                   std::move(manifest.value()));
  if (ram == nullptr) return disk;
  if (ram->complete(key)) common_->ram_hits.fetch_add(1, std::memory_order_relaxed);
  return make_ram_source(std::move(disk), ram, key);
}

}  // namespace blend
