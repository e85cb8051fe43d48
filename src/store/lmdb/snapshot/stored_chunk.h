// A chunk in stored form, for another tier.
#pragma once

#include <memory>

#include "store/chunk/stored_chunks.h"
#include "store/lmdb/catalog/manifest.h"
#include "store/lmdb/transaction.h"

namespace blend {

std::unique_ptr<StoredChunk> make_stored_chunk(Txn txn, const MapView& view, Manifest manifest);

}  // namespace blend
