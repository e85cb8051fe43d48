// The code books of ggml's IQ types: a code of a block names an entry, whose bytes are its
// elements, the first lowest. No byte is 0, so that a sign can be put on all of an entry's bytes at
// once.
#pragma once

#include <cstddef>
#include <cstdint>

namespace blend {

extern const uint64_t* const kIq2XxsGrid;  // [256][8]
extern const uint64_t* const kIq2XsGrid;   // [512][8]
extern const uint64_t* const kIq2SGrid;    // [1024][8]
extern const uint32_t* const kIq3XxsGrid;  // [256][4]
extern const uint32_t* const kIq3SGrid;    // [512][4]
// Elements are -1, 0 and 1; a byte is 128 + 8 times its element.
extern const uint64_t* const kIq1SGrid;  // [2048][8]

// Byte j of entry i is 255 where bit j of i is 1, else 0.
extern const uint64_t* const kBytesOfBits;  // [256]

}  // namespace blend
