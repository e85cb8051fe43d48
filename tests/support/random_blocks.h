// Random quantized weights.
#pragma once

#include <string>

#include "formats/weight_blocks.h"
#include "support/random_model.h"

namespace blend::test {

// n elements of mean about 0 and the given standard deviation: blocks of random bits whose scales
// make them so. Nothing is quantized. n: a multiple of block_elements(type).
std::string random_blocks(BlockType type, uint64_t n, double deviation, SplitMix& rng);

}  // namespace blend::test
