// AutoRatio: BLEND_RATIO_AUTO for one prompt: what the controller makes of a plan.
#pragma once

#include <cstdint>

#include "base/rate_meter.h"
#include "control/cost_model.h"
#include "fusion/plan.h"

namespace blend {

// What the prompt costs: rows by kind, and the bytes that come from the store. Chunks are computed
// up to the check layer and loaded from there, exact ones loaded from layer 0.
FuseShape shape_of(const Plan& plan, uint32_t check_layer, uint32_t n_layers);

// The ratio that hides behind loading, not below `least`. Chunks that are sooner computed than
// loaded are computed: their sources leave the plan. bytes_per_s > 0.
double control(Plan& plan, uint32_t check_layer, uint32_t n_layers, const PrefillTimes& prefill,
               double bytes_per_s, double least);

// BLEND_RATIO_AUTO: puts the ratio into `checks`, which holds the least one. False where there is
// nothing to choose (no check, a schedule of the host's) or nothing to choose by (no machine, no
// store). A store that nothing was read from yet is asked for a few layers of the plan.
bool choose_by_cost(RateMeter* reads, const FuseOptions& options, uint32_t n_layers, Plan& plan,
                    Schedule& checks);

}  // namespace blend
