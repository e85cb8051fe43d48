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
};

enum class OnUntrusted : uint32_t {
  fuse = BLEND_ON_UNTRUSTED_FUSE,
  full = BLEND_ON_UNTRUSTED_FULL,
  fail = BLEND_ON_UNTRUSTED_FAIL,
};

// What a host gives a fuse of calibration.
struct Calibration {
  const Profile* profile = nullptr;    // of the model (check_profile); null: none
  std::shared_ptr<const Drift> drift;  // its maps; null: it has none
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

// BLEND_FUSION_UNCALIBRATED, BLEND_FUSION_UNTRUSTED or 0. `chooses`: the fuse leaves rows out.
uint32_t trust_flags(Trust trust, bool chooses);

}  // namespace blend
