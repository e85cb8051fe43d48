// resolve(): what a fuse will do, decided once from what the caller said.
//
//   FuseRequest   what the caller said; const
//   ResolvedFuse  policy, check layers, ratio, drift maps, trust; a value that is never changed
//
// resolve() makes it before the store is asked. What the prompt's chunks say later gives another
// one: fall_back(), agreeing_fuse() and choose_ratio() before the layers, full_instead() where what
// they showed is in doubt.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "control/pass_choice.h"
#include "fusion/asked_layers.h"
#include "fusion/options.h"
#include "fusion/policy/registry.h"
#include "fusion/ratio_request.h"
#include "fusion/schedule.h"

namespace blend {

class SelectionPolicy;
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

struct ResolvedFuse {
  Policy policy = Policy::hkvd;                    // never automatic
  std::string_view why;                            // it is this one
  std::shared_ptr<const SelectionPolicy> ranking;  // null: nothing is chosen
  Needs needs;                                     // of ranking
  bool tempers = false;  // rows that keep their stored K, V are attended to as APE does
  uint32_t n_layers = 0;
  Schedule schedule;                   // with the ratio in force; empty: nothing is chosen
  bool own_schedule = false;           // the host's, with its ratios
  double ratio = kPaperRatio;          // the host's, or where an automatic one begins
  double least_ratio = 0;              // where calibration has an automatic one begin
  std::optional<RatioChoice> choice;   // what the controller made of it
  std::shared_ptr<const Drift> drift;  // corrects rows that are not recomputed; null: as stored
  std::shared_ptr<const Drift> stored_drift;  // corrects rows that are left out before layer 0
  bool drift_guarded = true;  // scaled by how it does on the rows that are computed (corrector.h)
  OnMiss on_miss = OnMiss::precompute;
  Trust trust = Trust::unknown;

  // Mean over the layers; the ratio where nothing is chosen.
  double mean_ratio() const;
  // Where a policy that probes asks the question.
  LayerRange asked() const { return asked_layers(needs.asks, n_layers); }
  // Whether the drift maps begin at the first check layer that measures.
  bool has_drift_for_schedule() const;
  // What the policy and the drift maps measure by begins here: the first layer whose stored K, V of
  // rows that are not exact are asked for. Of a fuse that chooses rows.
  uint32_t first_stored_layer(bool corrects) const;
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
