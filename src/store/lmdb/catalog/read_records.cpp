#include "store/lmdb/catalog/read_records.h"

#include <cstring>
#include <memory>

#include "store/lmdb/catalog/manifest.h"
#include "store/lmdb/error.h"
#include "store/lmdb/keys.h"
#include "store/lmdb/transaction.h"

namespace blend {

Status no_such_chunk(const Sha256& id) {
  return make_error(BLEND_E_NOT_FOUND, "chunk %s is not in the store", to_hex(id).c_str());
}

Result<Manifest> read_manifest(const Txn& txn, const MapView& view, const Sha256& id) {
  MDB_val key = id_val(id);
  MDB_val value{};
  const int rc = mdb_get(txn.get(), txn.env().meta(), &key, &value);
  if (rc == MDB_NOTFOUND) {
    return no_such_chunk(id);
  }
  if (rc != 0) return lmdb_error(rc, "chunk " + to_hex(id));
  if (!view.contains(to_span(value))) {
    return make_error(BLEND_E_CORRUPT, "the description of chunk %s lies outside the data file",
                      to_hex(id).c_str());
  }
  BLEND_ASSIGN(Manifest manifest, decode_manifest(to_span(value), id));
  // Checked before anything is allocated: no codec expands this much.
  if (manifest.stream_bytes() > view.bytes) {
    return make_error(BLEND_E_CORRUPT,
                      "the description of chunk %s claims more than the data file has",
                      to_hex(id).c_str());
  }
  return manifest;
}

Status for_each_manifest(const Txn& txn, const MapView& view, bool changed,
                         const std::function<void(const Manifest&)>& visit) {
  MDB_cursor* raw = nullptr;
  int rc = mdb_cursor_open(txn.get(), txn.env().meta(), &raw);
  if (rc != 0) return lmdb_error(rc, "count the chunks");
  const std::unique_ptr<MDB_cursor, void (*)(MDB_cursor*)> cursor(raw, mdb_cursor_close);
  MDB_val key{};
  MDB_val value{};
  while ((rc = mdb_cursor_get(raw, &key, &value, MDB_NEXT)) == 0) {
    Sha256 id{};
    const bool readable =
        view.contains(to_span(value)) || (changed && value.mv_size < view.page_size);
    if (key.mv_size != id.size() || !readable) continue;
    std::memcpy(id.data(), key.mv_data, id.size());
    if (const auto m = decode_manifest(to_span(value), id); m.is_ok()) visit(m.value());
  }
  return rc == MDB_NOTFOUND ? Status::ok() : lmdb_error(rc, "count the chunks");
}

Result<StoreCounters> read_counters(const Txn& txn, const MapView& view,
                                    const StoreCommon& common) {
  MDB_val key = name_val(kCountersKey);
  MDB_val value{};
  const int rc = mdb_get(txn.get(), txn.env().info(), &key, &value);
  if (rc != 0 && rc != MDB_NOTFOUND) return lmdb_error(rc, "read the counters");
  if (rc == 0 && view.contains(to_span(value))) {
    if (auto counters = decode_counters(to_span(value)); counters.is_ok()) return counters;
  }
  common.log.write(BLEND_LOG_WARNING, BLEND_E_CORRUPT, "store", [&](LogRecord& record) {
    record.message =
        "the counters of store '" + txn.env().path() + "' were damaged and have been counted again";
    record.add("path", txn.env().path());
  });
  StoreCounters counters;
  BLEND_RETURN_IF_ERROR(
      for_each_manifest(txn, view, false, [&](const Manifest& m) { counters.add(m); }));
  return counters;
}

}  // namespace blend
