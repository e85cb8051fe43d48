// A chunk in stored form, for another tier.
#pragma once

#include <memory>

#include "store/lmdb/manifest.h"
#include "store/lmdb/transaction.h"
#include "store/stored_chunks.h"

namespace blend {

std::unique_ptr<StoredChunk> make_stored_chunk(Txn txn, const MapView& view, Manifest manifest);

}  // namespace blend
