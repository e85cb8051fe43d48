// Edit: rows of a fused prompt taken out or replaced, and its account moved along.
#pragma once

#include <span>

#include "fusion/fuse.h"

namespace blend {

// Sequence::replace, and segments, selected rows and deviations numbered by the rows' new places
// (blend_fusion_replace says how). On failure `fused` is as before. Exclusive use of `fused`.
Status edit(Fused& fused, uint64_t first, uint64_t n_old, std::span<const int32_t> tokens,
            const Watch& watch);

}  // namespace blend
