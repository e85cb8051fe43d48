// resolve(): what a fuse will do, decided once from what the caller said.
//
//   FuseRequest   what the caller said; const
//   ResolvedFuse  policy, check layers, ratio, drift maps, trust (resolved_fuse.h)
//
// resolve() makes it before the store is asked. What the prompt's chunks say later gives another
// one: fall_back(), agreeing_fuse() and choose_ratio() before the layers, full_instead() where what
// they showed is in doubt.
#pragma once

#include "fusion/options.h"
#include "fusion/ratio_request.h"
#include "fusion/resolved_fuse.h"

namespace blend {

struct KnownCosts;
struct Prompt;

// What Policy::automatic is without a profile that says otherwise.
inline constexpr Policy kDefaultPolicy = Policy::attention;

// Who runs the layers, as far as it matters to what can be done.
struct FuseSite {
  uint32_t n_layers = 0;
  bool has_store = true;
  bool steps = false;  // the host does (StepPlan)
  bool loaded = true;  // the model has weights here, to prefill what is missing
};

// INVALID_ARGUMENT, UNSUPPORTED for what does not go together or not with this model; UNTRUSTED for
// what the profile doubts, where the host wants no such fuse.
Result<ResolvedFuse> resolve(const FuseRequest& request, const FuseSite& site);

// The same with hkvd. For a policy that Policy::automatic became, and that a chunk forbids.
Result<ResolvedFuse> fall_back(const ResolvedFuse& fuse, const FuseRequest& request);
// Whether `prompt` needs that.
bool must_fall_back(const ResolvedFuse& fuse, const FuseRequest& request, const Prompt& prompt);

// The same as a full prefill. For a fuse in doubt.
ResolvedFuse full_instead(const ResolvedFuse& fuse);

// The same at another ratio; never below least_ratio.
ResolvedFuse at_ratio(const ResolvedFuse& fuse, double ratio);

// The same with the ratio that the controller chooses for this prompt, where there is something to
// choose by (auto_ratio.h). Chunks that are sooner computed than loaded lose their sources.
ResolvedFuse choose_ratio(const ResolvedFuse& fuse, const RatioRequest& asked,
                          const KnownCosts& known, Prompt& prompt);

}  // namespace blend
