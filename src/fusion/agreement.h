// Which ratio keeps the agreement with full prefill that a host states (BLEND_RATIO_FIDELITY).
#pragma once

#include <optional>

#include "engine/model_description.h"
#include "fusion/prompt.h"
#include "fusion/resolved_fuse.h"

namespace blend {

class FidelityBook;

// As far as `book` (may be null) knows of prompts like this one. Nothing where none is asked for,
// or where the policy has no ratio to choose.
std::optional<double> agreeing_ratio(FidelityBook* book, const ModelDescription& model,
                                     const RatioRequest& asked, const ResolvedFuse& fuse,
                                     const Prompt& prompt);

}  // namespace blend
