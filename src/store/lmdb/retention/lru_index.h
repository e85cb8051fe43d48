// LruIndex: the eviction order of chunks, inside a transaction.
//
// Three databases change with the chunks: `uses` has a record of every chunk, `order` has every
// chunk that is not pinned in the order of its stamp, once among all chunks and once among its
// tenant's, and `tenants` the usage of each tenant. So the next victim is the first key of a range,
// whatever the number of chunks and whichever process used them last.
#pragma once

#include <functional>
#include <optional>

#include "store/evict/use_record.h"
#include "store/lmdb/environment.h"

namespace blend {

// Like Txn: used by one thread, which holds the transaction for as long.
class LruIndex {
 public:
  explicit LruIndex(const Txn& txn) : txn_(&txn) {}

  // Empty: there is none, or it is damaged.
  std::optional<UseRecord> find(const Sha256& id) const;
  TenantUse tenant(const TenantTag& tag) const;  // zeros: unknown
  UseTotals totals() const;
  // The oldest and newest stamp of chunks that are not pinned; zeros: there is none.
  Result<std::pair<uint64_t, uint64_t>> span() const;

  // Adds or replaces the record of a chunk, its entries in the order, and its tenant's usage.
  Status put(const Sha256& id, const UseRecord& record);
  // The same record with another stamp and count.
  Status restamp(const Sha256& id, const UseRecord& old, uint64_t stamp_us, uint32_t uses);
  Status erase(const Sha256& id);  // no effect if it has none
  Status set_tenant_quota(const TenantTag& tag, uint64_t quota);
  Status set_totals(const UseTotals& totals);

  // The chunks that are not pinned, oldest stamp from `from_us` on first, until `visit` returns
  // false. An all-zero
  // tag: all of them; otherwise the tenant's. The index must not change meanwhile.
  struct Place {
    TenantTag range;  // as walked
    uint64_t stamp_us = 0;
    Sha256 id{};
  };
  Status walk(const TenantTag& tag, const std::function<bool(const Place&)>& visit,
              uint64_t from_us = 0) const;
  // Removes an entry that belongs to no record.
  Status drop(const Place& place);

  // Rebuilds the three databases for the chunks of `present`; old records that are sound are kept.
  struct Chunk {
    Sha256 id{};
    uint64_t stamp_us = 0;  // of a chunk without a record
    uint64_t footprint = 0;
    TenantTag tenant{};
  };
  Status rebuild(std::span<const Chunk> present);

 private:
  Status change_tenant(const TenantTag& tag, const UseRecord* gone, const UseRecord* come);
  Status set_places(const Sha256& id, const UseRecord& record, bool there);
  std::optional<MDB_val> get(MDB_dbi dbi, MDB_val key) const;
  Status set(MDB_dbi dbi, MDB_val key, const std::string& bytes);

  const Txn* txn_;
};

}  // namespace blend
