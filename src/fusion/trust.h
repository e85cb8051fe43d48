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
#include "profile/profile.h"

namespace blend {

enum class DriftUse : uint32_t {
  automatic = BLEND_CORRECTION_AUTO,
  off = BLEND_CORRECTION_OFF,
  on = BLEND_CORRECTION_ON,
  unguarded = BLEND_CORRECTION_UNGUARDED,
};

// What a host gives a fuse of calibration.
struct Calibration {
  const Profile* profile = nullptr;                // of the model (check_profile); null: none
  std::shared_ptr<const Drift> drift = {};         // its maps; null: it has none
  std::shared_ptr<const Drift> stored_drift = {};  // those of stored rows
  DriftUse correction = DriftUse::automatic;
  OnUntrusted on_untrusted = OnUntrusted::fuse;
};

// MISMATCH when the profile is not of this model.
Status check_profile(const Profile& profile, const ModelDescription& model);

// Puts what the profile has for this fuse into its options: drift maps, the ratio that an automatic
// one begins at, trust. A controller only raises the ratio, which never costs trust. What is in
// doubt becomes a full prefill, or UNTRUSTED, where that is asked for. INVALID_ARGUMENT where the
// correction is a must and the maps do not fit.
Status apply_calibration(const Calibration& calibration, FuseOptions& options);

// What the profile says of a fuse with these options.
Trust trust_in(const Profile& profile, const FuseOptions& options);
// UNTRUSTED, with what is not measured or not kept and the way out. For trust that is doubted.
Status doubt_of(const Profile& profile, const FuseOptions& options);

// What is left of a drift correction whose maps hold for the prompt at hand: below this mean share
// (corrector.h) the fuse says that they do not.
inline constexpr double kLeastDriftShare = 0.5;

// Turns the fuse into a full prefill.
void make_full(FuseOptions& options);
// UNTRUSTED, for a fuse whose drift correction was found wanting.
Status drift_doubt(double share);

// BLEND_FUSION_UNCALIBRATED, BLEND_FUSION_UNTRUSTED or 0. `chooses`: the fuse leaves rows out.
uint32_t trust_flags(Trust trust, bool chooses);

}  // namespace blend
