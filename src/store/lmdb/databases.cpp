#include "store/lmdb/databases.h"

#include <memory>
#include <span>
#include <string>
#include <utility>

#include "store/evict/use_record.h"
#include "store/lmdb/catalog/manifest.h"
#include "store/lmdb/error.h"
#include "store/lmdb/keys.h"

namespace blend {

Status open_chunk_tables(MDB_env* env, bool create, Databases* out) {
  {
    MDB_txn* raw = nullptr;
    if (const int rc = mdb_txn_begin(env, nullptr, MDB_RDONLY, &raw); rc != 0) {
      return lmdb_error(rc, "begin");
    }
    std::unique_ptr<MDB_txn, void (*)(MDB_txn*)> txn(raw, mdb_txn_abort);
    int rc = mdb_dbi_open(txn.get(), "info", 0, &out->info);
    if (rc == 0) {
      MDB_val key = name_val(kFormatKey);
      MDB_val value{};
      rc = mdb_get(txn.get(), out->info, &key, &value);
      if (rc == MDB_NOTFOUND) {
        return {BLEND_E_FORMAT, "it is not a store: it has no format record"};
      }
      if (rc != 0) return lmdb_error(rc, "read the format record");
      const char* bytes = static_cast<const char*>(value.mv_data);
      BLEND_RETURN_IF_ERROR(decode_format(std::as_bytes(std::span(bytes, value.mv_size))).status());
      for (const auto& [name, dbi] :
           {std::pair{"chunks", &out->chunks}, std::pair{"meta", &out->meta}}) {
        rc = mdb_dbi_open(txn.get(), name, 0, dbi);
        if (rc == MDB_NOTFOUND) {
          return make_error(BLEND_E_CORRUPT, "it lacks its database '%s'", name);
        }
        if (rc != 0) return lmdb_error(rc, "open a database");
      }
      // Handles outlive the transaction only if it commits.
      return lmdb_error(commit_lmdb(txn.release()), "commit");
    }
    if (rc != MDB_NOTFOUND) {
      return rc == MDB_INCOMPATIBLE ? Status{BLEND_E_FORMAT, "it is another program's LMDB file"}
                                    : lmdb_error(rc, "open a database");
    }
    MDB_stat st{};
    // In this transaction: another process may be creating the store at this moment.
    MDB_dbi main = 0;
    rc = mdb_dbi_open(txn.get(), nullptr, 0, &main);
    if (rc == 0) rc = mdb_stat(txn.get(), main, &st);
    if (rc != 0) return lmdb_error(rc, "stat");
    if (st.ms_entries != 0) return {BLEND_E_FORMAT, "it is another program's LMDB file"};
    if (!create) return {BLEND_E_NOT_FOUND, "there is no store yet"};
  }
  MDB_txn* raw = nullptr;
  if (const int rc = mdb_txn_begin(env, nullptr, 0, &raw); rc != 0) {
    return lmdb_error(rc, "begin");
  }
  std::unique_ptr<MDB_txn, void (*)(MDB_txn*)> txn(raw, mdb_txn_abort);
  for (const auto& [name, dbi] : {std::pair{"info", &out->info}, std::pair{"chunks", &out->chunks},
                                  std::pair{"meta", &out->meta}}) {
    if (const int rc = mdb_dbi_open(txn.get(), name, MDB_CREATE, dbi); rc != 0) {
      return lmdb_error(rc, "create a database");
    }
  }
  const std::string format = encode_format(kOldestFormatVersion);
  const std::string counters = encode_counters({});
  const std::string totals = encode_totals({});
  for (const auto& [name, text] :
       {std::pair{kFormatKey, &format}, std::pair{kCountersKey, &counters},
        std::pair{kTotalsKey, &totals}}) {
    MDB_val k = name_val(name);
    MDB_val v{text->size(), const_cast<char*>(text->data())};
    // Another process may have been first: its records stay.
    const int rc = mdb_put(txn.get(), out->info, &k, &v, MDB_NOOVERWRITE);
    if (rc != 0 && rc != MDB_KEYEXIST) return lmdb_error(rc, "write the format record");
  }
  return lmdb_error(commit_lmdb(txn.release()), "write the format record");
}

Result<bool> open_use_tables(MDB_env* env, bool create, Databases* out) {
  for (const bool creating : {false, true}) {
    MDB_txn* raw = nullptr;
    int rc = mdb_txn_begin(env, nullptr, creating ? 0 : MDB_RDONLY, &raw);
    if (rc != 0) return lmdb_error(rc, "begin");
    std::unique_ptr<MDB_txn, void (*)(MDB_txn*)> txn(raw, mdb_txn_abort);
    for (const auto& [name, dbi] : {std::pair{"uses", &out->uses}, std::pair{"order", &out->order},
                                    std::pair{"tenants", &out->tenants}}) {
      if (rc == 0) rc = mdb_dbi_open(txn.get(), name, creating ? MDB_CREATE : 0u, dbi);
    }
    if (rc == 0) {
      rc = mdb_dbi_open(txn.get(), "texts", creating ? MDB_CREATE : 0u, &out->texts);
      if (rc == MDB_NOTFOUND && !create) {
        out->texts = 0;
        rc = 0;
      }
    }
    if (rc == 0) rc = commit_lmdb(txn.release());
    if (rc == 0) return true;
    if (rc != MDB_NOTFOUND) return lmdb_error(rc, "open a database");
    if (!create) return false;
  }
  return Status{BLEND_E_INTERNAL, "a database was not found after it was made"};
}

}  // namespace blend
