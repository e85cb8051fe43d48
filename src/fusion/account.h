// What a fuse says of itself when it is done: the info structs, filled from the plan and the pass.
#pragma once

#include "fusion/clock.h"
#include "fusion/fuse.h"
#include "fusion/layer_loader.h"
#include "fusion/plan.h"

namespace blend {

// What the reader did for a layer.
void account_load(const LayerLoad& load, blend_layer_info& out);

// One entry a segment, and the exact rows of all of them.
void account_segments(const Plan& plan, Fused& out);

// Totals over the layers, and the flags. `checks`: the schedule in force, empty where nothing was
// chosen; `ratio_chosen`: its ratio is the controller's. plan_ns: without the prefill of misses.
// Comes after what the info has of rows.
void account_totals(const Plan& plan, const FuseOptions& options, const Schedule& checks,
                    bool ratio_chosen, uint64_t plan_ns, Fused& out);

// The time to first token, read from the clock, and what of it no phase accounts for.
void account_end(const Stopwatch& clock, Fused& out);

}  // namespace blend
