// Precompute: the full prefill of one chunk by itself, kept as K (before RoPE) and V.
#pragma once

#include <memory>
#include <span>

#include "engine/model.h"
#include "store/chunk.h"

namespace blend {

// Prefills prefix + tokens at positions 0.. and keeps the rows of `tokens`. K is kept without
// position (AttentionStore 3.4.1), so the chunk may later stand anywhere. `meta` gives id, shape
// and tokens; they must agree with `tokens`; the rows' context impact is put beside them
// (context_impact.h). CONTEXT_LENGTH when prefix and chunk do not fit;
// NUMERIC when a value does not fit the dtype.
Result<std::shared_ptr<ChunkRecord>> precompute_chunk(const Model& model,
                                                      std::span<const int32_t> prefix,
                                                      ChunkMeta meta, const Watch& watch);

// The description that precompute_chunk and the look-up of a chunk share.
ChunkMeta describe_chunk(const ModelDescription& model, DType dtype,
                         std::span<const int32_t> prefix, std::string_view tenant,
                         std::span<const int32_t> tokens);

}  // namespace blend
