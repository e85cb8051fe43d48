#include "store/lmdb_snapshot.h"

#include <algorithm>

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

Result<std::unique_ptr<ChunkSource>> LmdbSnapshot::open(const Sha256& id) {
  BLEND_RETURN_IF_ERROR(common_->env->check_fork());
  if (const auto it = pending_.find(id); it != pending_.end()) {
    common_->hits.fetch_add(1, std::memory_order_relaxed);
    return make_memory_source(it->second);
  }
  Result<Manifest> manifest = [&] {
    const std::lock_guard lock(mutex_);
    return read_manifest(txn_, view_, id);
  }();
  if (!manifest.is_ok()) {
    common_->misses.fetch_add(1, std::memory_order_relaxed);
    if (manifest.status().code() != BLEND_E_NOT_FOUND) common_->damage(manifest.status());
    return manifest.status();
  }
  common_->hits.fetch_add(1, std::memory_order_relaxed);
  return std::unique_ptr<ChunkSource>(
      std::make_unique<LmdbSource>(txn_, view_, mutex_, common_->reader.get(), common_->cache_first,
                                   std::move(manifest.value())));
}

}  // namespace blend
