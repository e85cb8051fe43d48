// ResolvedFuse: what a fuse will do. A value that is never changed: resolve() makes it from what
// the caller said, and what the prompt's chunks say later gives another one (resolve.h).
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "control/pass_choice.h"
#include "fusion/asked_layers.h"
#include "fusion/options.h"
#include "fusion/policy/registry.h"
#include "fusion/schedule.h"

namespace blend {

class SelectionPolicy;

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

}  // namespace blend
