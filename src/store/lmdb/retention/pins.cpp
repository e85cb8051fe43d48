// What a host says of single chunks and tenants: pins and quotas, and what is known of their use.
#include <algorithm>

#include "store/lmdb/catalog/read_records.h"
#include "store/lmdb/retention/retention.h"

namespace blend {

Result<UseRecord> Retention::use(const Sha256& id) {
  BLEND_RETURN_IF_ERROR(common_.env->check_fork());
  BLEND_ASSIGN(const Txn txn, common_.env->begin_read());
  const std::optional<UseRecord> record = use_of(txn, id);
  if (record.has_value()) return *record;
  return make_error(BLEND_E_NOT_FOUND, "nothing is known of the use of chunk %s",
                    to_hex(id).c_str());
}

std::optional<UseRecord> Retention::use_of(const Txn& txn, const Sha256& id) const {
  std::optional<UseRecord> record = LruIndex(txn).find(id);
  if (!record.has_value()) return record;
  const Touches::Touch touch = touches_.find(id);
  record->stamp_us = std::max(record->stamp_us, touch.stamp_us);
  record->uses += touch.hits;
  return record;
}

Status Retention::pin(const Sha256& id, bool pinned) {
  BLEND_RETURN_IF_ERROR(common_.check_writable());
  BLEND_ASSIGN(ChunkWriter writer, ChunkWriter::begin(common_));
  auto record = writer.uses().find(id);
  if (!record.has_value()) {
    // Perhaps its record was damaged.
    BLEND_ASSIGN(const Txn txn, common_.env->begin_read());
    BLEND_ASSIGN(const MapView view, txn.map_view());
    BLEND_ASSIGN(const bool stored, has(txn, view, id, false));
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

Status Retention::set_tenant_quota(const TenantTag& tenant, uint64_t bytes) {
  BLEND_RETURN_IF_ERROR(common_.check_writable());
  if (tenant == TenantTag{}) {
    return {BLEND_E_INVALID_ARGUMENT,
            "the empty tenant has no quota of its own: quota_bytes is the store's"};
  }
  BLEND_ASSIGN(ChunkWriter writer, ChunkWriter::begin(common_));
  BLEND_RETURN_IF_ERROR(writer.uses().set_tenant_quota(tenant, bytes));
  return writer.commit().with_context("set a tenant's quota");
}

Result<TenantUse> Retention::tenant(const TenantTag& tenant) {
  BLEND_RETURN_IF_ERROR(common_.env->check_fork());
  BLEND_ASSIGN(const Txn txn, common_.env->begin_read());
  TenantUse use = LruIndex(txn).tenant(tenant);
  if (use.quota == 0) use.quota = tenant_quota_bytes_;
  return use;
}

}  // namespace blend
