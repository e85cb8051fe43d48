// The attention of a chunk's rows (RowImpact) as bytes: after the other fields of a description,
// in a store and in a file of exported chunks (FORMAT.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/wire.h"
#include "store/chunk/chunk.h"

namespace blend {

inline constexpr size_t kImpactBytes = 8;  // a row
void put_impact(ByteWriter& out, const std::vector<RowImpact>& impact);
// False: a value is not an attention.
bool get_impact(ByteReader& in, uint32_t n_tokens, std::vector<RowImpact>& impact);

}  // namespace blend
