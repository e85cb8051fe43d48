// Exact after a moment: tokens are streamed from the fused cache at once. Meanwhile the same prompt
// is prefilled in full. What was streamed is then checked as draft tokens are (speculative
// decoding: Leviathan et al., ICML '23).
#pragma once

#include <cstdint>
#include <span>

#include "fusion/fuse.h"

namespace blend {

// Replaces K and V of all rows of `fused` by those of full prefill, unless they are that already,
// and appends those of `answer` (checked by the caller), in order, that greedy decoding gives;
// n_kept: how many. The logits are then those after the last row. The account stays the fuse's;
// its flags say BLEND_FUSION_EXACT. Needs room for both caches meanwhile. On failure of full
// prefill `fused` is as before; on failure after it, it is exact and has n_kept tokens more.
Status make_exact(Fused& fused, std::span<const int32_t> answer, const Watch& watch,
                  size_t& n_kept);

}  // namespace blend
