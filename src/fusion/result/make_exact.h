// Exact after a moment: tokens are streamed from the fused cache at once. Meanwhile the same prompt
// is prefilled in full. Then the streamed tokens are checked as draft tokens (speculative decoding:
// Leviathan et al., ICML '23).
#pragma once

#include <cstdint>
#include <span>

#include "fusion/run/fuse.h"

namespace blend {

// Replaces K and V of all rows of `fused` by those of full prefill, unless they are that already.
// Then it appends the tokens of `answer` (validated by the caller), in order, up to the first that
// greedy decoding would not give; n_kept: how many. The logits are those after the last row. The
// report stays that of the fuse, with the flag BLEND_FUSION_EXACT. Needs memory for both caches
// meanwhile. If full prefill fails, `fused` is as before; if a later step fails, it is exact and
// has n_kept more tokens.
Status make_exact(Fused& fused, std::span<const int32_t> answer, const Watch& watch,
                  size_t& n_kept);

}  // namespace blend
