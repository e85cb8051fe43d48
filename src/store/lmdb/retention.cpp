// Retention: eviction, pins, quotas of tenants, and the stamps of use.
#include <algorithm>
#include <optional>
#include <utility>

#include "store/lmdb/keys.h"
#include "store/lmdb/lmdb_store.h"
#include "store/lmdb/manifest.h"
#include "store/lmdb/read_records.h"
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

Status LmdbStore::prepare() {
  if (options_.read_only) return Status::ok();
  bool uses_are_known = false;
  {
    BLEND_ASSIGN(const Txn txn, env_.begin_read());
    BLEND_ASSIGN(const MapView view, txn.map_view());
    MDB_val key = name_val(kTotalsKey);
    MDB_val value{};
    uses_are_known = mdb_get(txn.get(), env_.info(), &key, &value) == 0;
    // Damaged counters, and then the texts, are left to the first transaction that writes.
    key = name_val(kCountersKey);
    const bool readable =
        mdb_get(txn.get(), env_.info(), &key, &value) == 0 && view.contains(to_span(value));
    const auto counters = readable ? decode_counters(to_span(value))
                                   : Result<StoreCounters>(Status{BLEND_E_CORRUPT, "none"});
    const bool texts_fit =
        !counters.is_ok() || TextIndex::fits(TextIndex(txn).totals(), counters.value());
    if (uses_are_known && texts_fit) return Status::ok();
  }
  BLEND_ASSIGN(ChunkWriter writer, ChunkWriter::begin(*common_));  // builds the text index
  if (!uses_are_known) BLEND_RETURN_IF_ERROR(writer.rebuild_uses());
  return writer.commit();
}

std::shared_ptr<const EvictionPolicy> LmdbStore::policy() const {
  const std::lock_guard lock(mutex_);
  return policy_;
}

uint64_t LmdbStore::expired_us() const {
  const uint64_t now = next_stamp_us();
  return common_->ttl_us == 0 || common_->ttl_us >= now ? 0 : now - common_->ttl_us;
}

void LmdbStore::tell(const Room& room) const {
  if (common_->ram != nullptr) {
    for (const Evicted& e : room.evicted) common_->ram->drop(e.id);
  }
  if (!common_->events) return;
  for (const Evicted& e : room.evicted) {
    const Status note =
        make_error(BLEND_EVENT_EVICTED, "chunk %s (%llu bytes) %s", to_hex(e.id).c_str(),
                   static_cast<ull>(e.footprint), why(e.reason));
    common_->event(note.code(), note.message());
  }
}

Result<Room> LmdbStore::make_room_or_rebuild(ChunkWriter& writer, const RoomRequest& request) {
  const auto policy = this->policy();
  BLEND_ASSIGN(Room room, make_room(writer, request, *policy, common_->touches));
  if (room.state != Room::State::none) return room;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(rebuilt_, true)) return room;
  }
  // Damage may have lost chunks from the index, which could then never be evicted.
  BLEND_RETURN_IF_ERROR(writer.rebuild_uses());
  BLEND_ASSIGN(Room again, make_room(writer, request, *policy, common_->touches));
  room.evicted.insert(room.evicted.end(), again.evicted.begin(), again.evicted.end());
  again.evicted = std::move(room.evicted);
  return again;
}

Result<Room> LmdbStore::room_for(ChunkWriter& writer, const Manifest& manifest,
                                 const TenantTag& tenant, UseRecord* use) {
  const uint64_t footprint = manifest.footprint();
  use->stamp_us = next_stamp_us();
  use->tenant = tenant;
  RoomRequest request;
  request.id = manifest.meta.id;
  request.footprint = footprint;
  request.tenant = tenant;
  request.quota = options_.quota_bytes;
  request.expired_us = expired_us();
  request.text = text_tag(manifest.meta);
  request.n_prefix_tokens = manifest.meta.n_prefix_tokens;
  request.most_variants = options_.most_variants;
  if (const auto old = writer.uses().find(manifest.meta.id); old.has_value()) {
    request.replaced = old->footprint;
    use->pinned = old->pinned;
    use->uses = old->uses;
    // First in, first out: a replaced chunk keeps its position.
    if (!policy()->renewed_by_use()) use->stamp_us = not_ahead(old->stamp_us, use->stamp_us);
  }
  if (tenant != TenantTag{}) {
    const uint64_t own = writer.uses().tenant(tenant).quota;
    request.tenant_quota = own != 0 ? own : options_.tenant_quota_bytes;
  }
  const auto full = [&](const char* whose, uint64_t used, uint64_t quota) {
    return make_error(BLEND_E_FULL,
                      "it needs %llu bytes, and %llu of the %llu that the quota of %s '%s' allow "
                      "are in use: remove chunks or open the store with a larger quota_bytes",
                      static_cast<ull>(footprint), static_cast<ull>(used), static_cast<ull>(quota),
                      whose, env_.path().c_str());
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
  if (options_.eviction == Eviction::never) {
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
                        static_cast<ull>(request.most_variants), env_.path().c_str());
    }
    Room enough;
    enough.state = Room::State::enough;
    return enough;
  }
  return make_room_or_rebuild(writer, request);
}

Status LmdbStore::evict(uint64_t target_bytes, uint64_t* n_evicted) {
  *n_evicted = 0;
  BLEND_RETURN_IF_ERROR(check_writable());
  write_back_->drain();
  for (;;) {
    BLEND_ASSIGN(ChunkWriter writer, ChunkWriter::begin(*common_));
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

Result<UseRecord> LmdbStore::use(const Sha256& id) {
  BLEND_RETURN_IF_ERROR(env_.check_fork());
  BLEND_ASSIGN(const Txn txn, env_.begin_read());
  const std::optional<UseRecord> record = use_of(txn, id);
  if (record.has_value()) return *record;
  return make_error(BLEND_E_NOT_FOUND, "nothing is known of the use of chunk %s",
                    to_hex(id).c_str());
}

std::optional<UseRecord> LmdbStore::use_of(const Txn& txn, const Sha256& id) const {
  std::optional<UseRecord> record = UseIndex(txn).find(id);
  if (!record.has_value()) return record;
  const Touches::Touch touch = common_->touches.find(id);
  record->stamp_us = std::max(record->stamp_us, touch.stamp_us);
  record->uses += touch.hits;
  return record;
}

Status LmdbStore::pin(const Sha256& id, bool pinned) {
  BLEND_RETURN_IF_ERROR(check_writable());
  if (write_back_->find(id) != nullptr) write_back_->drain();
  BLEND_ASSIGN(ChunkWriter writer, ChunkWriter::begin(*common_));
  auto record = writer.uses().find(id);
  if (!record.has_value()) {
    // Perhaps its record was damaged.
    BLEND_ASSIGN(const bool stored, contains(id));
    if (!stored) {
      return make_error(BLEND_E_NOT_FOUND, "chunk %s is not in the store", to_hex(id).c_str());
    }
    BLEND_RETURN_IF_ERROR(writer.rebuild_uses());
    record = writer.uses().find(id);
    if (!record.has_value()) {
      return make_error(BLEND_E_CORRUPT, "chunk %s is damaged", to_hex(id).c_str());
    }
  }
  if (record->pinned == pinned) return Status::ok();
  record->pinned = pinned;
  UseTotals& totals = writer.totals();
  if (pinned) {
    totals.pinned_chunks += 1;
    totals.pinned_bytes += record->footprint;
  } else {
    totals.pinned_chunks -= std::min<uint64_t>(totals.pinned_chunks, 1);
    totals.pinned_bytes -= std::min(totals.pinned_bytes, record->footprint);
  }
  BLEND_RETURN_IF_ERROR(writer.uses().put(id, *record));
  return writer.commit().with_context("pin chunk " + to_hex(id));
}

Status LmdbStore::rename_of(const Sha256& id, const TenantTag* tenant, const ChunkName& name,
                            bool* changed) {
  *changed = false;
  BLEND_RETURN_IF_ERROR(env_.check_fork());
  if (write_back_->find(id) != nullptr) write_back_->drain();
  {
    // Usually it has that name already, given by an earlier put.
    BLEND_ASSIGN(const Txn txn, env_.begin_read());
    BLEND_ASSIGN(const MapView view, txn.map_view());
    BLEND_ASSIGN(const Manifest now, read_manifest(txn, view, id));
    if (tenant != nullptr && now.meta.tenant != *tenant) return no_such_chunk(id);
    if (name.says_no_more_than(now.meta.name)) return Status::ok();
  }
  BLEND_RETURN_IF_ERROR(check_writable());
  BLEND_ASSIGN(ChunkWriter writer, ChunkWriter::begin(*common_));
  std::optional<Manifest> manifest = writer.find(id);
  if (!manifest.has_value()) return no_such_chunk(id);  // gone since
  const ChunkName before = std::exchange(manifest->meta.name, name);
  manifest->meta.name.complete_with(before);
  BLEND_RETURN_IF_ERROR(writer.rename(*manifest).with_context("name chunk " + to_hex(id)));
  BLEND_RETURN_IF_ERROR(writer.commit().with_context("name chunk " + to_hex(id)));
  *changed = true;
  return Status::ok();
}

Status LmdbStore::set_tenant_quota(const TenantTag& tenant, uint64_t bytes) {
  BLEND_RETURN_IF_ERROR(check_writable());
  if (tenant == TenantTag{}) {
    return {BLEND_E_INVALID_ARGUMENT,
            "the empty tenant has no quota of its own: quota_bytes is the store's"};
  }
  BLEND_ASSIGN(ChunkWriter writer, ChunkWriter::begin(*common_));
  BLEND_RETURN_IF_ERROR(writer.uses().set_tenant_quota(tenant, bytes));
  return writer.commit().with_context("set a tenant's quota");
}

Result<TenantUse> LmdbStore::tenant(const TenantTag& tenant) {
  BLEND_RETURN_IF_ERROR(env_.check_fork());
  BLEND_ASSIGN(const Txn txn, env_.begin_read());
  TenantUse use = UseIndex(txn).tenant(tenant);
  if (use.quota == 0) use.quota = options_.tenant_quota_bytes;
  return use;
}

Status LmdbStore::write_touches() {
  if (options_.read_only || env_.forked()) return Status::ok();
  const Touches::Map touches = common_->touches.take();
  UseTotals now;
  now.ram_hits = common_->ram_hits.load();
  now.disk_hits = common_->hits.load() - now.ram_hits;
  now.misses = common_->misses.load();
  const uint64_t variant_hits = common_->variant_hits.load();
  UseTotals before;
  uint64_t variants_before = 0;
  {
    const std::lock_guard lock(mutex_);
    before = std::exchange(written_totals_, now);
    variants_before = std::exchange(written_variant_hits_, variant_hits);
  }
  // A variant's hit is counted after the look-up's, perhaps after that was written.
  if (touches.empty() && now == before && variant_hits == variants_before) return Status::ok();
  BLEND_ASSIGN(ChunkWriter writer, ChunkWriter::begin(*common_));
  UseIndex index = writer.uses();
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
