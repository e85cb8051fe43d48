// How rows are chosen, in detail: blend_selection_options.
#pragma once

#include "base/status.h"
#include "blend/experimental.h"
#include "fusion/request/options.h"
#include "fusion/resolve/trust.h"

namespace blend::capi {

// Fills in what `selection` (may be NULL) and `profile` (may be NULL) say: `selection` where it is
// set, then the profile's metric and check layer, then the defaults. INVALID_ARGUMENT,
// INVALID_STRUCT.
Status read_selection(const blend_selection_options* selection, const Profile* profile,
                      FuseOptions& out);
// The correction that is asked for: BLEND_CORRECTION_AUTO where nothing is.
Result<DriftUse> read_correction(const blend_selection_options* selection);
Status check_metric(uint32_t metric);

}  // namespace blend::capi
