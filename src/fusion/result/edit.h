// Edit: removes or replaces rows of a fused prompt, and updates its report.
#pragma once

#include <span>

#include "fusion/run/fuse.h"

namespace blend {

// Calls Sequence::replace, and renumbers segments, selected rows and deviations to the rows' new
// positions (blend_fusion_replace says how). On failure `fused` is as before. Exclusive use of
// `fused`.
Status edit(Fused& fused, uint64_t first, uint64_t n_old, std::span<const int32_t> tokens,
            const Watch& watch);

}  // namespace blend
