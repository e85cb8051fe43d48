// Saved fusions: the store keeps the KV cache of a conversation between its turns (AttentionStore
// 3.1).
#pragma once

#include <memory>
#include <string_view>

#include "engine/sequence.h"
#include "store/chunk_store.h"

namespace blend {

// The rows of `sequence` as a chunk of its own kind: K before RoPE, and V, as they are in the
// cache. They may be approximations of a fuse, so the id differs from that of a prefill of the same
// tokens. `sequence` is only read; other threads may read it meanwhile.
Result<std::shared_ptr<const ChunkRecord>> record_sequence(Sequence& sequence, DType dtype,
                                                           std::string_view tenant,
                                                           const Watch& watch);

// Restores from the store what record_sequence made. The last row is computed again, which gives
// its logits. NOT_FOUND (or another tenant's), MISMATCH (of another model), CORRUPT (counted in the
// store), CONTEXT_LENGTH.
Result<std::unique_ptr<Sequence>> restore_sequence(const std::shared_ptr<const Model>& model,
                                                   ChunkStore& store, const Sha256& id,
                                                   std::string_view tenant, uint32_t reserve_tokens,
                                                   const Watch& watch);

}  // namespace blend
