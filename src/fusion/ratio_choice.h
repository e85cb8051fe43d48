// RatioChoice: which share of the reused rows is recomputed, and who says so.
//
// One value goes from the host's options to the account. The host fixes the ratio, or leaves it to
// the controller (BLEND_RATIO_AUTO): that begins at the least that calibration allows and may only
// raise it, by how long prefills take on this machine (auto_ratio.h).
#pragma once

#include <algorithm>

#include "control/cost_model.h"

namespace blend {

// A plain value; the machine's times must outlive it.
class RatioChoice {
 public:
  RatioChoice() = default;  // the paper's, fixed
  static RatioChoice fixed(double ratio) { return {ratio, false, nullptr}; }
  // `times` null: there is no machine to choose by, so the ratio stays where it begins.
  static RatioChoice automatic(const PrefillTimes* times) {
    return {RatioChoice().ratio_, true, times};
  }

  double ratio() const { return ratio_; }
  bool is_automatic() const { return automatic_; }
  bool is_chosen() const { return chosen_; }  // by the controller
  // What the controller chooses by; null: it does not choose.
  const PrefillTimes* times() const { return times_; }

  // Where an automatic ratio begins; a fixed one stays as it is.
  void begin_at(double least) {
    if (automatic_) ratio_ = least;
  }
  // The controller's word, for one prompt. times() is not null.
  void choose(double ratio) {
    ratio_ = std::max(ratio_, ratio);
    chosen_ = true;
  }

 private:
  RatioChoice(double ratio, bool automatic, const PrefillTimes* times)
      : ratio_(ratio), automatic_(automatic), times_(times) {}

  double ratio_ = 0.15;
  bool automatic_ = false;
  bool chosen_ = false;
  const PrefillTimes* times_ = nullptr;
};

}  // namespace blend
