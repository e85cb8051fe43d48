#include "store/lmdb/prefetch/prefetcher.h"

#include <algorithm>
#include <new>

#include "store/lmdb/catalog/manifest.h"
#include "store/lmdb/catalog/read_records.h"
#include "store/lmdb/snapshot/source.h"
#include "store/lmdb/transaction.h"

namespace blend {
namespace {

// The share of the quota that hinted chunks keep; the rest is for puts that no hint names.
constexpr uint64_t kWindowNumerator = 3;
constexpr uint64_t kWindowDenominator = 4;

}  // namespace

Prefetcher::Prefetcher(StoreCommon& common, Retention& retention, Worker& worker,
                       const StoreOptions& options)
    : common_(common),
      retention_(retention),
      worker_(worker),
      eviction_(options.eviction),
      quota_bytes_(options.quota_bytes) {}

Status Prefetcher::hint(std::span<const Sha256> ids) {
  BLEND_RETURN_IF_ERROR(common_.env->check_fork());
  const uint64_t number = hints_.fetch_add(1) + 1;  // reading ahead for an older one stops
  NeedMap needs;
  std::vector<Sha256> ahead;  // as many as memory can hold, in order
  uint64_t stored = 0;
  uint64_t in_ram = 0;
  bool ram_has_room = common_.ram != nullptr;
  {
    BLEND_ASSIGN(const Txn txn, common_.env->begin_read());
    BLEND_ASSIGN(const MapView view, txn.map_view());
    BLEND_ASSIGN(const StoreCounters counters, read_counters(txn, view, common_));
    const uint64_t usual = counters.n_chunks == 0 ? 0 : counters.footprint / counters.n_chunks;
    const uint64_t window = quota_bytes_ / kWindowDenominator * kWindowNumerator;
    const LruIndex index(txn);
    for (const Sha256& id : ids) {
      if (needs.contains(id)) continue;
      const auto use = index.find(id);
      // A missing chunk will be put: until then it counts with the average size.
      stored += use.has_value() ? use->footprint : usual;
      needs.emplace(id, Need{needs.size(), stored <= window});
      if (!use.has_value() || !ram_has_room) continue;
      // Decoded it may be larger; the tier itself keeps the budget.
      in_ram += use->footprint;
      ram_has_room = in_ram <= common_.ram->budget();
      if (ram_has_room) ahead.push_back(id);
    }
  }
  auto policy = make_policy(eviction_);
  if (!needs.empty()) policy = make_hinted_policy(std::move(policy), std::move(needs));
  {
    const MutexLock lock(mutex_);
    if (number != hints_.load()) return Status::ok();  // a newer one has replaced it
    retention_.follow(std::move(policy));
  }
  if (common_.ram == nullptr) return Status::ok();
  common_.ram->want(ahead);
  if (!ahead.empty()) {
    worker_.post([this, ahead = std::move(ahead), number] { read_ahead(ahead, number); });
  }
  return Status::ok();
}

void Prefetcher::read_ahead(const std::vector<Sha256>& ids, uint64_t hint) {
  try {
    for (const Sha256& id : ids) {
      if (hints_.load() != hint || worker_.stopping()) return;
      // Damage is found again, and reported, by the fuse that needs the chunk.
      if (const Status read = read_into_ram(id, hint); read.code() == BLEND_E_FORKED) return;
    }
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): reading ahead is best effort
  }
}

Status Prefetcher::read_into_ram(const Sha256& id, uint64_t hint) {
  BLEND_ASSIGN(const Txn txn, common_.env->begin_read());
  BLEND_ASSIGN(const MapView view, txn.map_view());
  BLEND_ASSIGN(Manifest manifest, read_manifest(txn, view, id));
  const RamTier::Key key{manifest.meta.id, manifest.version()};
  const ChunkShape shape = manifest.meta.shape;
  if (common_.ram->complete(key)) return Status::ok();
  Mutex mutex;
  LmdbSource source(txn, view, mutex, nullptr, true, std::move(manifest));
  source.prefetch(0);
  for (uint32_t layer = 0; layer < shape.n_layers; ++layer) {
    if (hints_.load() != hint || worker_.stopping()) return Status::ok();
    if (layer + 1 < shape.n_layers) source.prefetch(layer + 1);
    if (common_.ram->find(key, layer) != nullptr) continue;
    const std::shared_ptr<std::byte> memory = common_.ram->allocate(shape.layer_bytes(layer));
    if (memory == nullptr) return Status::out_of_memory();
    BLEND_RETURN_IF_ERROR(source.read_layer(layer, memory.get()));
    if (!common_.ram->put(key, shape, layer, memory)) return Status::ok();
  }
  prefetched_.fetch_add(1, std::memory_order_relaxed);
  return Status::ok();
}

}  // namespace blend
