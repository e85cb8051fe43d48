// Trust: whether a profile trusts a fuse.
//
// Calibration measured some kinds of fusing (chunk prefix, metric, check layer, drift correction),
// and from which ratio on each keeps the limits. A fuse of such a kind gets its drift maps and the
// controller's least ratio from the profile, and is trusted if its ratio keeps the limits. Any
// other fuse is in doubt.
#pragma once

#include <memory>

#include "engine/model_description.h"
#include "fusion/request/options.h"
#include "fusion/request/resolved_fuse.h"
#include "profile/profile.h"

namespace blend {

struct Prompt;

// MISMATCH: the profile is of another model.
Status check_profile(const Profile& profile, const ModelDescription& model);

// Sets drift maps, the start of an automatic ratio, and trust of a fuse whose policy is resolved. A
// controller only raises the ratio, which never loses trust. UNTRUSTED: the fuse is in doubt and
// the host refuses such fuses. INVALID_ARGUMENT: the host insists on the correction, and the maps
// do not fit.
Status calibrate(const FuseOptions& options, ResolvedFuse& fuse);

// Whether the profile trusts such a fuse.
Trust trust_in(const Profile& profile, const FuseOptions& options, const ResolvedFuse& fuse);
// UNTRUSTED for a fuse in doubt. The message says what was not measured or not kept, and the
// remedy.
Status doubt_of(const Profile& profile, const FuseOptions& options, const ResolvedFuse& fuse);

// Least mean share of the drift correction (corrector.h) at which the maps count as fitting the
// prompt. Below it the fuse reports that they do not.
inline constexpr double kLeastDriftShare = 0.5;

// UNTRUSTED, for a fuse whose drift maps do not fit the prompt.
Status drift_doubt(double share);

// The same fuse; or, if the profile trusts it and `prompt` uses a record that is farther from full
// prefill than those that were measured, what the host wants then: the fuse in doubt, or a full
// prefill, for which the prompt is to be looked up again. UNTRUSTED: the host refuses such fuses.
Result<ResolvedFuse> judge_records(const FuseOptions& options, const ResolvedFuse& fuse,
                                   const Prompt& prompt);

// BLEND_FUSION_UNCALIBRATED, BLEND_FUSION_UNTRUSTED or 0. `chooses`: the fuse leaves rows out.
uint32_t trust_flags(Trust trust, bool chooses);

}  // namespace blend
