// Trust: what a profile is worth for one fuse.
//
// Calibration measured some kinds of fusing (chunk prefix, metric, check layer, drift correction)
// and from which ratio on each keeps the limits. For those kinds it gives the fuse its drift maps
// and the controller's least ratio, and vouches for what keeps the limits. For all else it says
// nothing, and the fuse is in doubt.
#pragma once

#include <memory>

#include "engine/model_description.h"
#include "fusion/options.h"
#include "fusion/resolved_fuse.h"
#include "profile/profile.h"

namespace blend {

// MISMATCH when the profile is not of this model.
Status check_profile(const Profile& profile, const ModelDescription& model);

// Gives a fuse whose policy is resolved what the profile has for it: drift maps, the ratio that an
// automatic one begins at, trust. A controller only raises the ratio, which never costs trust.
// UNTRUSTED for what is in doubt, where the host wants no such fuse; INVALID_ARGUMENT where the
// correction is a must and the maps do not fit.
Status calibrate(const FuseOptions& options, ResolvedFuse& fuse);

// What the profile says of such a fuse.
Trust trust_in(const Profile& profile, const FuseOptions& options, const ResolvedFuse& fuse);
// UNTRUSTED, with what is not measured or not kept and the way out. For trust that is doubted.
Status doubt_of(const Profile& profile, const FuseOptions& options, const ResolvedFuse& fuse);

// What is left of a drift correction whose maps hold for the prompt at hand: below this mean share
// (corrector.h) the fuse says that they do not.
inline constexpr double kLeastDriftShare = 0.5;

// UNTRUSTED, for a fuse whose drift correction was found wanting.
Status drift_doubt(double share);

// BLEND_FUSION_UNCALIBRATED, BLEND_FUSION_UNTRUSTED or 0. `chooses`: the fuse leaves rows out.
uint32_t trust_flags(Trust trust, bool chooses);

}  // namespace blend
