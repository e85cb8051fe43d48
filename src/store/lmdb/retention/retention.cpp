#include "store/lmdb/retention/retention.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "store/lmdb/catalog/manifest.h"
#include "store/lmdb/catalog/read_records.h"
#include "store/lmdb/keys.h"
#include "store/lmdb/transaction.h"

namespace blend {

using ull = unsigned long long;

namespace {

const char* why(Reason reason) {
  switch (reason) {
    case Reason::expired:
      return "had expired and left the store";
    case Reason::room:
      return "left the store to make room";
    case Reason::variants:
      return "left the store for another variant of its text";
  }
  return "left the store";
}

}  // namespace

Retention::Retention(StoreCommon& common, Worker& worker, const StoreOptions& options)
    : common_(common),
      worker_(worker),
      eviction_(options.eviction),
      quota_bytes_(options.quota_bytes),
      tenant_quota_bytes_(options.tenant_quota_bytes),
      most_variants_(options.most_variants),
      ttl_us_(std::min(options.ttl_s, uint64_t{1} << 40) * 1'000'000),
      policy_(make_policy(options.eviction)),
      notes_use_(!common.read_only && policy()->renewed_by_use()) {}

Status Retention::prepare() {
  if (common_.read_only) return Status::ok();
  bool uses_are_known = false;
  {
    BLEND_ASSIGN(const Txn txn, common_.env->begin_read());
    BLEND_ASSIGN(const MapView view, txn.map_view());
    MDB_val key = name_val(kTotalsKey);
    MDB_val value{};
    uses_are_known = mdb_get(txn.get(), common_.env->info(), &key, &value) == 0;
    // Damaged counters, and then the texts, are left to the first transaction that writes.
    key = name_val(kCountersKey);
    const bool readable =
        mdb_get(txn.get(), common_.env->info(), &key, &value) == 0 && view.contains(to_span(value));
    const auto counters = readable ? decode_counters(to_span(value))
                                   : Result<StoreCounters>(Status{BLEND_E_CORRUPT, "none"});
    const bool texts_fit =
        !counters.is_ok() || TextIndex::fits(TextIndex(txn).totals(), counters.value());
    if (uses_are_known && texts_fit) return Status::ok();
  }
  BLEND_ASSIGN(ChunkWriter writer, ChunkWriter::begin(common_));  // builds the text index
  if (!uses_are_known) BLEND_RETURN_IF_ERROR(writer.rebuild_uses());
  const bool told = !uses_are_known && writer.counters().n_chunks > 0;
  BLEND_RETURN_IF_ERROR(writer.commit());
  if (told) common_.rebuilt("uses");
  return Status::ok();
}

void Retention::follow(std::shared_ptr<const EvictionPolicy> policy) {
  const MutexLock lock(mutex_);
  policy_ = std::move(policy);
}

std::shared_ptr<const EvictionPolicy> Retention::policy() const {
  const MutexLock lock(mutex_);
  return policy_;
}

bool Retention::expired(const LruIndex& index, const Sha256& id) const {
  if (ttl_us_ == 0) return false;
  const auto use = index.find(id);
  if (!use.has_value() || use->pinned) return false;
  const uint64_t stamp = std::max(use->stamp_us, touches_.find(id).stamp_us);
  return next_stamp_us() > stamp + ttl_us_;  // a stamp ahead: not before a put has corrected it
}

Result<bool> Retention::has(const Txn& txn, const MapView& view, const Sha256& id,
                            bool if_damaged) const {
  const auto manifest = read_manifest(txn, view, id);
  if (manifest.is_ok()) return !expired(LruIndex(txn), id);
  const int32_t code = manifest.status().code();
  if (code == BLEND_E_CORRUPT) return if_damaged;
  if (code == BLEND_E_NOT_FOUND || code == BLEND_E_UNSUPPORTED) return false;
  return manifest.status();
}

void Retention::used(const Sha256& id) noexcept {
  if (!notes_use_) return;
  bool told = false;
  try {
    if (!touches_.add(id, next_stamp_us())) return;
    // Best effort: stamps only order later evictions.
    told = worker_.post([this] { (void)write_touches(); });
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): best effort, as above
  }
  if (!told) touches_.still_due();
}

uint64_t Retention::expired_us() const {
  const uint64_t now = next_stamp_us();
  return ttl_us_ == 0 || ttl_us_ >= now ? 0 : now - ttl_us_;
}

void Retention::tell(const Room& room) const {
  if (common_.ram != nullptr) {
    for (const Evicted& e : room.evicted) common_.ram->drop(e.id);
  }
  for (const Evicted& e : room.evicted) {
    common_.log.write(BLEND_LOG_INFO, BLEND_EVENT_EVICTED, "store", [&](LogRecord& record) {
      record.message =
          "chunk " + to_hex(e.id) + " (" + std::to_string(e.footprint) + " bytes) " + why(e.reason);
      record.add("chunk", to_hex(e.id));
      record.add("bytes", e.footprint);
    });
  }
}

Result<Room> Retention::make_room_or_rebuild(ChunkWriter& writer, const RoomRequest& request) {
  const auto policy = this->policy();
  BLEND_ASSIGN(Room room, make_room(writer, request, *policy, touches_));
  if (room.state != Room::State::none) return room;
  {
    const MutexLock lock(mutex_);
    if (std::exchange(rebuilt_, true)) return room;
  }
  // Damage may have lost chunks from the index, which could then never be evicted.
  BLEND_RETURN_IF_ERROR(writer.rebuild_uses());
  BLEND_ASSIGN(Room again, make_room(writer, request, *policy, touches_));
  room.evicted.insert(room.evicted.end(), again.evicted.begin(), again.evicted.end());
  again.evicted = std::move(room.evicted);
  return again;
}

Result<Room> Retention::room_for(ChunkWriter& writer, const Manifest& manifest,
                                 const TenantTag& tenant, UseRecord* use) {
  const uint64_t footprint = manifest.footprint();
  use->stamp_us = next_stamp_us();
  use->tenant = tenant;
  RoomRequest request;
  request.id = manifest.meta.id;
  request.footprint = footprint;
  request.tenant = tenant;
  request.quota = quota_bytes_;
  request.expired_us = expired_us();
  request.text = text_tag(manifest.meta);
  request.n_prefix_tokens = manifest.meta.n_prefix_tokens;
  request.most_variants = most_variants_;
  if (const auto old = writer.uses().find(manifest.meta.id); old.has_value()) {
    request.replaced = old->footprint;
    use->pinned = old->pinned;
    use->uses = old->uses;
    // First in, first out: a replaced chunk keeps its position.
    if (!policy()->renewed_by_use()) use->stamp_us = not_ahead(old->stamp_us, use->stamp_us);
  }
  if (tenant != TenantTag{}) {
    const uint64_t own = writer.uses().tenant(tenant).quota;
    request.tenant_quota = own != 0 ? own : tenant_quota_bytes_;
  }
  const auto full = [&](const char* whose, uint64_t used, uint64_t quota) {
    return make_error(BLEND_E_FULL,
                      "it needs %llu bytes, and %llu of the %llu that the quota of %s '%s' allow "
                      "are in use: remove chunks or open the store with a larger quota_bytes",
                      static_cast<ull>(footprint), static_cast<ull>(used), static_cast<ull>(quota),
                      whose, common_.env->path().c_str());
  };
  // A chunk that cannot fit must not evict any.
  const uint64_t pinned = writer.totals().pinned_bytes - (use->pinned ? request.replaced : 0);
  if (footprint > request.quota || pinned > request.quota - footprint) {
    return full("the store", pinned, request.quota)
        .with_context(pinned == 0 ? "larger than the quota" : "pinned chunks are in the way");
  }
  if (request.tenant_quota != 0 && footprint > request.tenant_quota) {
    return full("a tenant of", writer.uses().tenant(tenant).footprint, request.tenant_quota);
  }
  if (eviction_ == Eviction::never) {
    const auto room = [&](uint64_t used, uint64_t quota) {
      return used - std::min(used, request.replaced) + footprint <= quota;
    };
    const uint64_t used = writer.counters().footprint;
    if (!room(used, request.quota)) return full("the store", used, request.quota);
    const uint64_t tenant_used = writer.uses().tenant(tenant).footprint;
    if (request.tenant_quota != 0 && !room(tenant_used, request.tenant_quota)) {
      return full("a tenant of", tenant_used, request.tenant_quota);
    }
    uint64_t n_others = 0;
    BLEND_RETURN_IF_ERROR(writer.texts().walk(request.text, [&](const TextIndex::Record& r) {
      n_others += r.id == request.id ? 0 : 1;
      return n_others <= request.most_variants;
    }));
    if (n_others > request.most_variants) {
      return make_error(BLEND_E_FULL,
                        "its text has %llu variants already, as many as the store '%s' keeps, and "
                        "nothing may be evicted: remove some, or open the store with larger "
                        "most_variants",
                        static_cast<ull>(request.most_variants), common_.env->path().c_str());
    }
    Room enough;
    enough.state = Room::State::enough;
    return enough;
  }
  return make_room_or_rebuild(writer, request);
}

Status Retention::evict(uint64_t target_bytes, uint64_t* n_evicted) {
  *n_evicted = 0;
  BLEND_RETURN_IF_ERROR(common_.check_writable());
  for (;;) {
    BLEND_ASSIGN(ChunkWriter writer, ChunkWriter::begin(common_));
    RoomRequest request;
    request.quota = target_bytes;
    request.expired_us = expired_us();
    BLEND_ASSIGN(const Room room, make_room_or_rebuild(writer, request));
    if (!room.evicted.empty()) {
      BLEND_RETURN_IF_ERROR(writer.commit().with_context("evict"));
      tell(room);
      *n_evicted += room.evicted.size();
    }
    // A batch that is full of expired chunks may have left more of them.
    const bool more = room.evicted.size() >= kEvictionBatch;
    if (room.state == Room::State::enough && !more) return Status::ok();
    if (room.state == Room::State::none) return {BLEND_E_FULL, "evict: " + room.why};
  }
}

Status Retention::write_touches() {
  if (common_.read_only || common_.env->forked()) return Status::ok();
  const Touches::Map touches = touches_.take();
  UseTotals now;
  now.ram_hits = common_.ram_hits.load();
  now.disk_hits = common_.hits.load() - now.ram_hits;
  now.misses = common_.misses.load();
  const uint64_t variant_hits = common_.variant_hits.load();
  UseTotals before;
  uint64_t variants_before = 0;
  {
    const MutexLock lock(mutex_);
    before = std::exchange(written_totals_, now);
    variants_before = std::exchange(written_variant_hits_, variant_hits);
  }
  // A variant's hit is counted after the look-up's, perhaps after that was written.
  if (touches.empty() && now == before && variant_hits == variants_before) return Status::ok();
  BLEND_ASSIGN(ChunkWriter writer, ChunkWriter::begin(common_));
  LruIndex index = writer.uses();
  const uint64_t now_us = next_stamp_us();
  for (const auto& [id, touch] : touches) {
    const auto old = index.find(id);  // empty: evicted since
    if (!old.has_value()) continue;
    const uint64_t stamp =
        std::max(not_ahead(old->stamp_us, now_us), not_ahead(touch.stamp_us, now_us));
    BLEND_RETURN_IF_ERROR(index.restamp(id, *old, stamp, old->uses + touch.hits));
  }
  UseTotals& totals = writer.totals();
  totals.ram_hits += now.ram_hits - before.ram_hits;
  totals.disk_hits += now.disk_hits - before.disk_hits;
  totals.misses += now.misses - before.misses;
  writer.text_totals().variant_hits += variant_hits - variants_before;
  return writer.commit();
}

}  // namespace blend
