// resolve(): decides how a fuse works, from the caller's request.
//
//   FuseRequest   the caller's request; const
//   ResolvedFuse  policy, check layers, ratio, drift maps, trust (resolved_fuse.h)
//
// resolve() makes it before the store is asked. When the prompt's chunks are known, fall_back(),
// agreeing_fuse() and choose_ratio() may make another one from it before the layers, and
// full_instead() after them, if the drift correction is in doubt.
#pragma once

#include <vector>

#include "fusion/request/options.h"
#include "fusion/request/ratio_request.h"
#include "fusion/request/resolved_fuse.h"

namespace blend {

struct KnownCosts;
struct Prompt;

// The policy for Policy::automatic, unless a profile says otherwise.
inline constexpr Policy kDefaultPolicy = Policy::attention;

// Where the layers run, which limits what a fuse can do.
struct FuseSite {
  uint32_t n_layers = 0;
  RowMixer mixer = {};  // of the model (model/config.h)
  bool has_store = true;
  bool steps = false;      // the host runs the layers (LayerwiseFuse)
  bool loaded = true;      // the model has weights here, so missing chunks can be prefilled
  uint32_t free_rows = 0;  // BackendTraits; 0 where the host runs the layers
};

// INVALID_ARGUMENT, UNSUPPORTED: options that cannot be combined, or not with this model.
// UNTRUSTED: the profile does not trust the fuse, and the host refuses such fuses.
Result<ResolvedFuse> resolve(const FuseRequest& request, const FuseSite& site);

// The same with hkvd, if Policy::automatic became a policy for which a chunk lacks statistics.
Result<ResolvedFuse> fall_back(const ResolvedFuse& fuse, const FuseRequest& request);
// Whether `prompt` needs that.
bool must_fall_back(const ResolvedFuse& fuse, const FuseRequest& request, const Prompt& prompt);

// The same as a full prefill. For a fuse in doubt.
ResolvedFuse full_instead(const ResolvedFuse& fuse);

// The same at another ratio; never below least_ratio.
ResolvedFuse at_ratio(const ResolvedFuse& fuse, double ratio);

// The same with the ratio that the controller chooses for this prompt, if costs are known
// (auto_ratio.h). Chunks that are computed sooner than loaded lose their sources.
ResolvedFuse choose_ratio(const ResolvedFuse& fuse, const RatioRequest& asked,
                          const KnownCosts& known, Prompt& prompt);

}  // namespace blend
