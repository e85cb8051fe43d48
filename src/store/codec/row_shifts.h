// How coarse the scale of each row may be: by how much its chunk's own rows attend to it, which is
// kept with the chunk (RowImpact::inside). The error of a row reaches the rows that attend to it,
// in proportion; so where the sum of squares is least for the bytes, scale times attention is
// the same for all rows. These are the powers of two nearest to a little less than that.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "store/chunk/chunk.h"

namespace blend {

// Which codec asks for them.
constexpr bool takes_row_shifts(Codec codec) { return codec == Codec::rans; }

inline constexpr uint8_t kUsualShift = 2;  // of a row with average attention

// [n_tokens], each 0 .. 3: the row's scale is 2^this of the finest. Empty where nothing is known.
std::vector<uint8_t> row_shifts(std::span<const RowImpact> impact);

}  // namespace blend
