// The answer to a fusion, as far as it is noted for a check (fidelity_checks.h). None of these can
// fail the call that they are part of.
#pragma once

#include <functional>
#include <span>

#include "capi/handles.h"

namespace blend::capi {

// The fusion was made a moment ago; decides whether its answer is checked.
void begin_answer(blend_fusion& fusion, const blend_store* store) noexcept;
// Notes the logits that the next token is taken from; then one, if any, is appended.
void note_answer(blend_fusion& fusion) noexcept;
// The answer is whole, or its rows are about to change: leaves it to be checked.
void end_answer(blend_fusion& fusion) noexcept;
// The same after a generation, if the answer is whole: it was stopped, or is as long as checks are.
void end_whole_answer(blend_fusion& fusion, bool stopped) noexcept;

}  // namespace blend::capi
