// Import: converts a chunk that a host prefilled with its own engine to the form that is stored.
#pragma once

#include <memory>
#include <span>

#include "engine/model_description.h"
#include "store/chunk/chunk.h"

namespace blend {

// layers: [n_layers], each the chunk's rows at the positions first_position .. ; meta as for
// precompute_chunk. CONTEXT_LENGTH when the positions do not fit the model's context; NUMERIC when
// a value is not finite, or does not fit the dtype.
Result<std::shared_ptr<ChunkRecord>> import_chunk(const ModelDescription& model,
                                                  std::span<const HostKv> layers,
                                                  uint32_t first_position, ChunkMeta meta,
                                                  const Watch& watch);

}  // namespace blend
