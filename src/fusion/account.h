// What a fuse says of itself when it is done: the info structs, filled from the prompt and the
// pass.
#pragma once

#include "fusion/clock.h"
#include "fusion/corrector.h"
#include "fusion/fuse.h"
#include "fusion/layer_loader.h"
#include "fusion/prompt.h"
#include "fusion/selection.h"

namespace blend {

// What the reader did for a layer.
void account_load(const LayerLoad& load, blend_layer_info& out);

// What was corrected at a layer, and how much of it the guard let through.
void account_drift(const Corrector& corrector, blend_layer_info& layer, blend_fusion_report& info);

// One entry a segment, and the exact rows of all of them.
void account_segments(const Prompt& prompt, Fused& out);

// Totals over the layers, the settings in force, and the flags. plan_ns: without the prefill of
// misses. Comes after what the info has of rows.
void account_totals(const Prompt& prompt, const FuseOptions& options, const ResolvedFuse& fuse,
                    const Selection& selection, uint64_t plan_ns, Fused& out);

// The time to first token, read from the clock, and what of it no phase accounts for.
void account_end(const Stopwatch& clock, Fused& out);

}  // namespace blend
