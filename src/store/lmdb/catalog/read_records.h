// Reading the records that describe a store's chunks, inside a transaction.
#pragma once

#include <functional>

#include "store/lmdb/catalog/manifest.h"
#include "store/lmdb/store_common.h"
#include "store/lmdb/transaction.h"

namespace blend {

Status no_such_chunk(const Sha256& id);  // NOT_FOUND

// NOT_FOUND, or as decode_manifest().
Result<Manifest> read_manifest(const Txn& txn, const MapView& view, const Sha256& id);

// `visit` gets every sound manifest, in the order of ids. `changed`: the transaction has changes;
// changed tree pages, with their short values, are on the heap and not in the map.
// Long manifests that it has written are left out.
Status for_each_manifest(const Txn& txn, const MapView& view, bool changed,
                         const std::function<void(const Manifest&)>& visit);

// The counters as the transaction sees them; if they are damaged, counted again, and the log is
// told.
Result<StoreCounters> read_counters(const Txn& txn, const MapView& view, const StoreCommon& common);

}  // namespace blend
