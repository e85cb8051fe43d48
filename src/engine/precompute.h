// Precompute: one chunk prefilled after a chunk prefix, as a record to store.
#pragma once

#include <memory>
#include <span>

#include "engine/chunk_prefill.h"
#include "engine/model.h"
#include "store/chunk/chunk.h"

namespace blend {

// ChunkPrefill of a single chunk: for a caller that has no others after this prefix.
Result<std::shared_ptr<ChunkRecord>> precompute_chunk(
    const Model& model, std::span<const int32_t> prefix, ChunkMeta meta, const Watch& watch,
    std::span<const ContextPassage> passages = {});

// The description that precompute_chunk and the look-up of a chunk share.
ChunkMeta describe_chunk(const ModelDescription& model, DType dtype,
                         std::span<const int32_t> prefix, std::string_view tenant,
                         std::span<const int32_t> tokens, RecordKind kind = RecordKind::plain);

}  // namespace blend
