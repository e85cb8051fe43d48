// The ratio for BLEND_RATIO_FIDELITY: it keeps the agreement with full prefill that the host asks
// for.
#pragma once

#include <optional>

#include "engine/model_description.h"
#include "fusion/prompt/prompt.h"
#include "fusion/request/resolved_fuse.h"

namespace blend {

class FidelityBook;

// The ratio by the checks in `book` (may be null) of prompts like this one. Nothing if the host
// asks for no agreement, or the policy has no ratio.
std::optional<double> agreeing_ratio(FidelityBook* book, const ModelDescription& model,
                                     const RatioRequest& asked, const ResolvedFuse& fuse,
                                     const Prompt& prompt);

}  // namespace blend
