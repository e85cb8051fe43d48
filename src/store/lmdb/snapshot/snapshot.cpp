#include "store/lmdb/snapshot/snapshot.h"

#include "store/lmdb/catalog/manifest.h"
#include "store/lmdb/catalog/read_records.h"
#include "store/lmdb/snapshot/source.h"

namespace blend {

Result<std::unique_ptr<ChunkSource>> LmdbSnapshot::open_of(const Sha256& id,
                                                           const TenantTag* tenant) {
  BLEND_RETURN_IF_ERROR(common_.env->check_fork());
  // Ids must not reveal other tenants' chunks: they count as missing.
  const auto theirs = [&](const ChunkMeta& meta) {
    return tenant != nullptr && meta.tenant != *tenant;
  };
  if (const auto it = pending_.find(id); it != pending_.end() && !theirs(it->second->meta)) {
    common_.hits.fetch_add(1, std::memory_order_relaxed);
    common_.ram_hits.fetch_add(1, std::memory_order_relaxed);
    return make_memory_source(it->second);
  }
  Result<Manifest> manifest = [&] {
    const MutexLock lock(mutex_);
    Result<Manifest> found = read_manifest(txn_, view_, id);
    if (found.is_ok() && theirs(found->meta)) return Result<Manifest>(no_such_chunk(id));
    if (found.is_ok() && retention_.expired(LruIndex(txn_), id)) {
      return Result<Manifest>(make_error(BLEND_E_NOT_FOUND, "chunk %s has expired: nobody used it",
                                         to_hex(id).c_str()));
    }
    return found;
  }();
  if (!manifest.is_ok()) {
    common_.misses.fetch_add(1, std::memory_order_relaxed);
    if (manifest.status().code() != BLEND_E_NOT_FOUND) common_.damage(manifest.status());
    return manifest.status();
  }
  common_.hits.fetch_add(1, std::memory_order_relaxed);
  retention_.used(id);
  const std::shared_ptr<RamTier>& ram = common_.ram;
  const RamTier::Key key = ram != nullptr ? RamTier::Key{id, manifest->version()} : RamTier::Key{};
  std::unique_ptr<ChunkSource> disk = std::make_unique<LmdbSource>(
      txn_, view_, mutex_, reads_.reader.get(), reads_.cache_first, std::move(manifest.value()));
  if (ram == nullptr) return disk;
  if (ram->complete(key)) common_.ram_hits.fetch_add(1, std::memory_order_relaxed);
  return make_ram_source(std::move(disk), ram, key);
}

Result<bool> LmdbSnapshot::holds(const Sha256& id) {
  BLEND_RETURN_IF_ERROR(common_.env->check_fork());
  if (pending_.contains(id)) return true;
  const MutexLock lock(mutex_);
  return retention_.has(txn_, view_, id, true);
}

}  // namespace blend
