// AutoRatio: BLEND_RATIO_AUTO for one prompt, which the controller chooses by what it costs.
#pragma once

#include <cstdint>

#include "base/rate_meter.h"
#include "control/cost_model.h"
#include "fusion/prompt.h"

namespace blend {

// What the prompt costs: rows by kind, and the bytes that come from the store. Chunks are computed
// up to the check layer and loaded from there, exact ones loaded from layer 0.
FuseShape shape_of(const Prompt& prompt, uint32_t check_layer, uint32_t n_layers);

// The ratio that hides behind loading, not below `least`. Chunks that are sooner computed than
// loaded are computed: their sources leave the prompt. bytes_per_s > 0.
double ratio_by_cost(Prompt& prompt, uint32_t check_layer, uint32_t n_layers,
                     const PrefillTimes& prefill, double bytes_per_s, double least);

// Raises `ratio`, which says the least one, where there is something to choose by: a machine's
// times, and a store that knows how fast it is (`reads`, may be null). One that nothing was read
// from yet is asked for a few layers of the prompt.
void choose_by_cost(RateMeter* reads, uint32_t check_layer, uint32_t n_layers, Prompt& prompt,
                    RatioChoice& ratio);

}  // namespace blend
