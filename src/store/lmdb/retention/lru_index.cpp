#include "store/lmdb/retention/lru_index.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "store/lmdb/error.h"
#include "store/lmdb/keys.h"
#include "store/lmdb/transaction.h"

namespace blend {
namespace {

MDB_val val(std::span<const uint8_t> bytes) {
  return {bytes.size(), const_cast<uint8_t*>(bytes.data())};
}

// Range, stamp (big-endian, so that LMDB keeps the order), id.
struct PlaceKey {
  std::array<uint8_t, 16 + 8 + 32> bytes{};
  PlaceKey(const TenantTag& range, uint64_t stamp_us, const Sha256& id) {
    std::copy(range.begin(), range.end(), bytes.begin());
    for (size_t i = 0; i < 8; ++i) bytes[16 + i] = static_cast<uint8_t>(stamp_us >> (56 - 8 * i));
    std::copy(id.begin(), id.end(), bytes.begin() + 24);
  }
  static std::optional<LruIndex::Place> read(const MDB_val& key) {
    if (key.mv_size != 16 + 8 + 32) return std::nullopt;
    const auto* p = static_cast<const uint8_t*>(key.mv_data);
    LruIndex::Place place;
    std::copy(p, p + 16, place.range.begin());
    for (size_t i = 0; i < 8; ++i) place.stamp_us = place.stamp_us << 8 | p[16 + i];
    std::copy(p + 24, p + 56, place.id.begin());
    return place;
  }
  MDB_val val() { return {bytes.size(), bytes.data()}; }
};

}  // namespace

std::optional<MDB_val> LruIndex::get(MDB_dbi dbi, MDB_val key) const {
  MDB_val value{};
  if (!txn_->env().has_use_tables()) return std::nullopt;
  if (mdb_get(txn_->get(), dbi, &key, &value) != 0) return std::nullopt;
  return value;
}

Status LruIndex::set(MDB_dbi dbi, MDB_val key, const std::string& bytes) {
  MDB_val value{bytes.size(), const_cast<char*>(bytes.data())};
  return lmdb_error(mdb_put(txn_->get(), dbi, &key, &value, 0), "note the use of a chunk");
}

std::optional<UseRecord> LruIndex::find(const Sha256& id) const {
  const auto value = get(txn_->env().uses(), val(id));
  if (!value.has_value()) return std::nullopt;
  const auto record = decode_use(to_span(*value));
  if (!record.is_ok()) return std::nullopt;
  return record.value();
}

TenantUse LruIndex::tenant(const TenantTag& tag) const {
  const auto value = get(txn_->env().tenants(), val(tag));
  if (!value.has_value()) return {};
  const auto tenant = decode_tenant(to_span(*value));
  return tenant.is_ok() ? tenant.value() : TenantUse{};
}

UseTotals LruIndex::totals() const {
  const auto value = get(txn_->env().info(), name_val(kTotalsKey));
  if (!value.has_value()) return {};
  const auto totals = decode_totals(to_span(*value));
  return totals.is_ok() ? totals.value() : UseTotals{};
}

Status LruIndex::set_totals(const UseTotals& totals) {
  return set(txn_->env().info(), name_val(kTotalsKey), encode_totals(totals));
}

Status LruIndex::set_places(const Sha256& id, const UseRecord& record, bool there) {
  if (record.pinned) return Status::ok();
  const auto one = [&](const TenantTag& range) {
    PlaceKey place(range, record.stamp_us, id);
    MDB_val key = place.val();
    MDB_val nothing{0, nullptr};
    const int rc = there ? mdb_put(txn_->get(), txn_->env().order(), &key, &nothing, 0)
                         : mdb_del(txn_->get(), txn_->env().order(), &key, nullptr);
    return rc == MDB_NOTFOUND ? Status::ok() : lmdb_error(rc, "order the chunks");
  };
  BLEND_RETURN_IF_ERROR(one(TenantTag{}));
  return record.tenant == TenantTag{} ? Status::ok() : one(record.tenant);
}

Status LruIndex::change_tenant(const TenantTag& tag, const UseRecord* gone, const UseRecord* come) {
  if (tag == TenantTag{}) return Status::ok();
  TenantUse t = tenant(tag);
  // Damage may have lost the record: stay above zero.
  if (gone != nullptr) {
    t.n_chunks -= std::min<uint64_t>(t.n_chunks, 1);
    t.footprint -= std::min(t.footprint, gone->footprint);
  }
  if (come != nullptr) {
    t.n_chunks += 1;
    t.footprint += come->footprint;
  }
  if (t == TenantUse{}) {
    MDB_val key = val(tag);
    const int rc = mdb_del(txn_->get(), txn_->env().tenants(), &key, nullptr);
    return rc == MDB_NOTFOUND ? Status::ok() : lmdb_error(rc, "note a tenant");
  }
  return set(txn_->env().tenants(), val(tag), encode_tenant(t));
}

Status LruIndex::set_tenant_quota(const TenantTag& tag, uint64_t quota) {
  TenantUse t = tenant(tag);
  t.quota = quota;
  return set(txn_->env().tenants(), val(tag), encode_tenant(t));
}

Status LruIndex::put(const Sha256& id, const UseRecord& record) {
  BLEND_RETURN_IF_ERROR(erase(id));
  BLEND_RETURN_IF_ERROR(set_places(id, record, true));
  BLEND_RETURN_IF_ERROR(change_tenant(record.tenant, nullptr, &record));
  return set(txn_->env().uses(), val(id), encode_use(record));
}

Status LruIndex::restamp(const Sha256& id, const UseRecord& old, uint64_t stamp_us, uint32_t uses) {
  UseRecord record = old;
  record.stamp_us = stamp_us;
  record.uses = uses;
  BLEND_RETURN_IF_ERROR(set_places(id, old, false));
  BLEND_RETURN_IF_ERROR(set_places(id, record, true));
  return set(txn_->env().uses(), val(id), encode_use(record));
}

Status LruIndex::erase(const Sha256& id) {
  if (const auto old = find(id); old.has_value()) {
    BLEND_RETURN_IF_ERROR(set_places(id, *old, false));
    BLEND_RETURN_IF_ERROR(change_tenant(old->tenant, &*old, nullptr));
  }
  MDB_val key = val(id);
  const int rc = mdb_del(txn_->get(), txn_->env().uses(), &key, nullptr);
  return rc == MDB_NOTFOUND ? Status::ok() : lmdb_error(rc, "note the use of a chunk");
}

Status LruIndex::walk(const TenantTag& tag, const std::function<bool(const Place&)>& visit,
                      uint64_t from_us) const {
  MDB_cursor* raw = nullptr;
  int rc = mdb_cursor_open(txn_->get(), txn_->env().order(), &raw);
  if (rc != 0) return lmdb_error(rc, "find the oldest chunks");
  const std::unique_ptr<MDB_cursor, void (*)(MDB_cursor*)> cursor(raw, mdb_cursor_close);
  PlaceKey first(tag, from_us, Sha256{});
  MDB_val key = first.val();
  MDB_val value{};
  for (rc = mdb_cursor_get(raw, &key, &value, MDB_SET_RANGE); rc == 0;
       rc = mdb_cursor_get(raw, &key, &value, MDB_NEXT)) {
    const auto place = PlaceKey::read(key);
    if (!place.has_value()) continue;
    if (place->range != tag || !visit(*place)) return Status::ok();
  }
  return rc == MDB_NOTFOUND ? Status::ok() : lmdb_error(rc, "find the oldest chunks");
}

Result<std::pair<uint64_t, uint64_t>> LruIndex::span() const {
  std::pair<uint64_t, uint64_t> stamps{0, 0};
  if (!txn_->env().has_use_tables()) return stamps;
  BLEND_RETURN_IF_ERROR(walk({}, [&](const Place& place) {
    stamps.first = place.stamp_us;
    return false;
  }));
  // The last key of the first range: the one before the least key of any tenant's.
  MDB_cursor* raw = nullptr;
  int rc = mdb_cursor_open(txn_->get(), txn_->env().order(), &raw);
  if (rc != 0) return lmdb_error(rc, "find the newest chunk");
  const std::unique_ptr<MDB_cursor, void (*)(MDB_cursor*)> cursor(raw, mdb_cursor_close);
  TenantTag next{};
  next.back() = 1;
  PlaceKey border(next, 0, Sha256{});
  MDB_val key = border.val();
  MDB_val value{};
  rc = mdb_cursor_get(raw, &key, &value, MDB_SET_RANGE);
  rc = mdb_cursor_get(raw, &key, &value, rc == MDB_NOTFOUND ? MDB_LAST : MDB_PREV);
  if (rc == MDB_NOTFOUND) return stamps;
  if (rc != 0) return lmdb_error(rc, "find the newest chunk");
  const auto place = PlaceKey::read(key);
  if (place.has_value() && place->range == TenantTag{}) stamps.second = place->stamp_us;
  return stamps;
}

Status LruIndex::drop(const Place& place) {
  PlaceKey k(place.range, place.stamp_us, place.id);
  MDB_val key = k.val();
  const int rc = mdb_del(txn_->get(), txn_->env().order(), &key, nullptr);
  return rc == MDB_NOTFOUND ? Status::ok() : lmdb_error(rc, "order the chunks");
}

Status LruIndex::rebuild(std::span<const Chunk> present) {
  std::vector<UseRecord> records;
  records.reserve(present.size());
  std::vector<std::pair<TenantTag, uint64_t>> quotas;
  UseTotals sum = totals();
  sum.pinned_chunks = sum.pinned_bytes = 0;
  for (const Chunk& chunk : present) {
    UseRecord record = find(chunk.id).value_or(UseRecord{chunk.stamp_us, 0, 0, false, {}});
    record.footprint = chunk.footprint;
    record.tenant = chunk.tenant;
    sum.pinned_chunks += record.pinned ? 1 : 0;
    sum.pinned_bytes += record.pinned ? record.footprint : 0;
    records.push_back(record);
  }
  MDB_cursor* raw = nullptr;
  int rc = mdb_cursor_open(txn_->get(), txn_->env().tenants(), &raw);
  if (rc != 0) return lmdb_error(rc, "read the tenants");
  {
    const std::unique_ptr<MDB_cursor, void (*)(MDB_cursor*)> cursor(raw, mdb_cursor_close);
    MDB_val key{};
    MDB_val value{};
    while ((rc = mdb_cursor_get(raw, &key, &value, MDB_NEXT)) == 0) {
      const auto t = decode_tenant(to_span(value));
      TenantTag tag{};
      if (key.mv_size != tag.size() || !t.is_ok() || t.value().quota == 0) continue;
      std::memcpy(tag.data(), key.mv_data, tag.size());
      quotas.emplace_back(tag, t.value().quota);
    }
  }
  if (rc != MDB_NOTFOUND) return lmdb_error(rc, "read the tenants");
  for (const MDB_dbi dbi : {txn_->env().uses(), txn_->env().order(), txn_->env().tenants()}) {
    if ((rc = mdb_drop(txn_->get(), dbi, 0)) != 0) return lmdb_error(rc, "order the chunks");
  }
  for (const auto& [tag, quota] : quotas) BLEND_RETURN_IF_ERROR(set_tenant_quota(tag, quota));
  for (size_t i = 0; i < present.size(); ++i) {
    BLEND_RETURN_IF_ERROR(put(present[i].id, records[i]));
  }
  return set_totals(sum);
}

}  // namespace blend
