// The report of a fuse: fills the info structs from the prompt and the pass.
#pragma once

#include "fusion/correct/corrector.h"
#include "fusion/load/layer_loader.h"
#include "fusion/prompt/prompt.h"
#include "fusion/request/clock.h"
#include "fusion/run/fuse.h"
#include "fusion/select/selection.h"

namespace blend {

// Reports the loading of a layer.
void report_load(const LayerLoad& load, blend_layer_info& out);

// Reports the drift correction of a layer, and the share of it that the guard confirmed.
void account_drift(const Corrector& corrector, blend_layer_info& layer, blend_fusion_report& info);

// Fills one entry for each segment, and the number of their exact rows.
void report_segments(const Prompt& prompt, Fused& out);

// Totals over the layers, the settings in force, and the flags. plan_ns: without the prefill of
// misses. Needs the row counts of the info.
void report_totals(const Prompt& prompt, const FuseOptions& options, const ResolvedFuse& fuse,
                   const Selection& selection, uint64_t plan_ns, Fused& out);

// Reads the time to first token from the clock, and sets other_ns to the part that no phase has.
void report_end(const Stopwatch& clock, Fused& out);

}  // namespace blend
