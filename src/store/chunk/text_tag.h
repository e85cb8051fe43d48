// TextTag: identifies the text of chunks.
#pragma once

#include <array>
#include <cstdint>

#include "store/chunk/chunk.h"

namespace blend {

// The same for all chunks of one model, dtype and tenant that hold these tokens, whatever their
// prefixes. The first half of a SHA-256.
using TextTag = std::array<uint8_t, 16>;
TextTag text_tag(const ChunkMeta& meta);

}  // namespace blend
