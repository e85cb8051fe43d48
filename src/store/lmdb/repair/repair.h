// Removes what is damaged from a store.
#pragma once

#include <functional>

#include "store/lmdb/catalog/catalog.h"
#include "store/lmdb/store_common.h"

namespace blend {

// As StoreAdmin::repair() says. remove: removes a chunk, whose record may be queued again.
Status repair_store(StoreCommon& common, Catalog& catalog,
                    const std::function<Status(const Sha256&)>& remove, const StoreAdmin::Visit& fn,
                    uint64_t* n_removed);

}  // namespace blend
