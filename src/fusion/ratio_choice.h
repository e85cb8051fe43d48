// RatioChoice: which share of the reused rows is recomputed, and who says so.
//
// One value goes from the host's options to the account. The host fixes the ratio, or leaves it to
// the controller (BLEND_RATIO_AUTO): that begins at the least that calibration allows and may only
// raise it, by how long prefills take on this machine and by the time that the host gives
// (auto_ratio.h). Or it states how often answers are to agree with full prefill
// (BLEND_RATIO_FIDELITY): then the controller begins at what checked answers have shown
// (control/fidelity.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "control/cost_model.h"
#include "control/fidelity.h"

namespace blend {

// A plain value; the machine's times must outlive it.
class RatioChoice {
 public:
  RatioChoice() = default;  // the paper's, fixed
  static RatioChoice fixed(double ratio) { return {ratio, false, nullptr}; }
  // `times` null: there is no machine to choose by, so the ratio stays where it begins. target_s:
  // until the first token; 0: as soon as can be.
  static RatioChoice automatic(const PrefillTimes* times, double target_s = 0) {
    RatioChoice out{RatioChoice().ratio_, true, times};
    out.target_s_ = target_s;
    return out;
  }

  // The same, but it begins at what keeps this agreement, once the prompt's chunks are known.
  static RatioChoice fidelity(double agreement, const PrefillTimes* times, double target_s = 0) {
    RatioChoice out{RatioChoice().ratio_, true, times};
    out.agreement_ = agreement;
    out.target_s_ = target_s;
    return out;
  }

  // What the controller chose by.
  struct Reckoned {
    double ttft_s = 0;             // of what it chose, of which, beside each other,
    double load_s = 0;             // loading and
    double compute_s = 0;          // computing
    double computing_s = 0;        // computing all of it
    uint64_t n_rows_computed = 0;  // stored, and computed because that is sooner
    bool late = false;             // the host gives less than the soonest takes
  };

  double ratio() const { return ratio_; }
  bool is_automatic() const { return automatic_; }
  bool is_chosen() const { return chosen_; }  // by the controller
  // The agreement that is to be kept; nothing where the host asks for none.
  std::optional<double> agreement() const { return agreement_; }
  // What the controller chooses by; null: it does not choose.
  const PrefillTimes* times() const { return times_; }
  double target_s() const { return target_s_; }
  const Reckoned& reckoned() const { return reckoned_; }

  // Where an automatic ratio begins; a fixed one stays as it is.
  void begin_at(double least) {
    if (!automatic_) return;
    ratio_ = least;
    least_ = least;
  }
  // What keeps agreement(), as far as is known: never less than where it begins.
  void settle(double ratio) { ratio_ = std::max(least_, ratio); }
  // The controller's word, for one prompt. times() is not null.
  void choose(double ratio, const Reckoned& reckoned) {
    ratio_ = std::max(ratio_, ratio);
    reckoned_ = reckoned;
    chosen_ = true;
  }

 private:
  RatioChoice(double ratio, bool automatic, const PrefillTimes* times)
      : ratio_(ratio), automatic_(automatic), times_(times) {}

  double ratio_ = 0.15;
  double least_ = 0;
  std::optional<double> agreement_;
  bool automatic_ = false;
  bool chosen_ = false;
  const PrefillTimes* times_ = nullptr;
  double target_s_ = 0;
  Reckoned reckoned_;
};

}  // namespace blend
