// Which ratio keeps the agreement with full prefill that a host states (BLEND_RATIO_FIDELITY).
#pragma once

#include <optional>

#include "engine/model_description.h"
#include "fusion/options.h"
#include "fusion/prompt.h"
#include "fusion/selection.h"

namespace blend {

class FidelityBook;

// As far as `book` (may be null) knows of prompts like this one. Nothing where none is asked for,
// or where the policy has no ratio to choose.
std::optional<double> agreeing_ratio(FidelityBook* book, const ModelDescription& model,
                                     const FuseOptions& options, const Selection& selection,
                                     const Prompt& prompt);

}  // namespace blend
