// TextTag: which chunks hold the same text.
#pragma once

#include <array>
#include <cstdint>

#include "store/chunk.h"

namespace blend {

// The same for all chunks of one model, dtype and tenant that hold these tokens, whatever they were
// prefilled behind. The first half of a SHA-256.
using TextTag = std::array<uint8_t, 16>;
TextTag text_tag(const ChunkMeta& meta);

}  // namespace blend
