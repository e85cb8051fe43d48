// Quantized weights to f32.
#pragma once

#include <cstddef>

#include "formats/weight_blocks.h"

namespace blend::kernels {

// Like blend::decode_blocks (formats/weight_blocks.h), its reference: the same numbers to the
// bit.
void decode_blocks(BlockType type, const std::byte* data, size_t n, float* out);

}  // namespace blend::kernels
