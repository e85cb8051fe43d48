// The report of a fuse: fills the info structs from the prompt and the pass.
#pragma once

#include "fusion/clock.h"
#include "fusion/corrector.h"
#include "fusion/fuse.h"
#include "fusion/layer_loader.h"
#include "fusion/prompt.h"
#include "fusion/selection.h"

namespace blend {

// Reports the loading of a layer.
void account_load(const LayerLoad& load, blend_layer_info& out);

// Reports the drift correction of a layer, and the share of it that the guard confirmed.
void account_drift(const Corrector& corrector, blend_layer_info& layer, blend_fusion_report& info);

// Fills one entry for each segment, and the number of their exact rows.
void account_segments(const Prompt& prompt, Fused& out);

// Totals over the layers, the settings in force, and the flags. plan_ns: without the prefill of
// misses. Needs the row counts of the info.
void account_totals(const Prompt& prompt, const FuseOptions& options, const ResolvedFuse& fuse,
                    const Selection& selection, uint64_t plan_ns, Fused& out);

// Reads the time to first token from the clock, and sets other_ns to the part that no phase has.
void account_end(const Stopwatch& clock, Fused& out);

}  // namespace blend
