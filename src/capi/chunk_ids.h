// Chunk ids between the ABI and the store.
#pragma once

#include <cstring>

#include "base/hash.h"
#include "blend/types.h"

namespace blend::capi {

inline Sha256 digest_of(const blend_chunk_id& id) {
  Sha256 digest;
  std::memcpy(digest.data(), id.bytes, digest.size());
  return digest;
}

}  // namespace blend::capi
