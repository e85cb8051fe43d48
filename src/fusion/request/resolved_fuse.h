// ResolvedFuse: what a fuse will do. A value that is never changed: resolve() makes it from what
// the caller said, and what the prompt's chunks say later gives another one (resolve.h).
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "control/pass_choice.h"
#include "fusion/request/asked_layers.h"
#include "fusion/request/options.h"
#include "fusion/request/policy_registry.h"
#include "fusion/request/schedule.h"
#include "model/config.h"

namespace blend {

class SelectionPolicy;

struct ResolvedFuse {
  Policy policy = Policy::hkvd;                    // never automatic
  std::string_view why;                            // the reason for this policy
  std::shared_ptr<const SelectionPolicy> ranking;  // null: nothing is chosen
  Needs needs;                                     // of ranking
  bool tempers = false;  // rows that keep their stored K, V are attended to as APE does
  uint32_t n_layers = 0;
  RowMixer mixer;                      // of the model (model/config.h)
  Schedule schedule;                   // with the ratio in force; empty: nothing is chosen
  bool own_schedule = false;           // the host's, with its ratios
  double ratio = kPaperRatio;          // the host's, or the start of an automatic one
  double least_ratio = 0;              // least ratio for an automatic one, by calibration
  std::optional<RatioChoice> choice;   // the controller's choice
  std::shared_ptr<const Drift> drift;  // corrects rows that are not recomputed; null: as stored
  std::shared_ptr<const Drift> stored_drift;  // corrects rows that are left out before layer 0
  bool shifts = false;        // chunks, by what their recomputed rows moved by (chunk_shift.h)
  bool drift_guarded = true;  // scaled by the share that the recomputed rows confirm (corrector.h)
  OnMiss on_miss = OnMiss::precompute;
  Trust trust = Trust::unknown;

  // Mean over the layers; `ratio` if no rows are chosen.
  double mean_ratio() const;
  // The layers at which a policy that probes reads the question's attention.
  LayerRange asked() const { return asked_layers(needs.asks, n_layers, mixer); }
  // Whether the drift maps begin at the first check layer that measures.
  bool has_drift_for_schedule() const;
  // For a fuse that chooses rows: the first layer at which stored K, V of rows that are not exact
  // are needed, to measure or to be used.
  uint32_t first_stored_layer(bool corrects) const;
};

}  // namespace blend
