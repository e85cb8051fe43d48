// RatioRequest: the recomputed share of the reused rows that the host asks for.
//
// There are three ways. The host fixes the ratio. Or it leaves it to the controller
// (BLEND_RATIO_AUTO), which begins at the least ratio that calibration allows, and raises it by the
// times of prefills on this machine and by the host's target (auto_ratio.h). Or the host states how
// often answers must agree with full prefill (BLEND_RATIO_FIDELITY): then the controller begins at
// the ratio that follows from checked answers (control/fidelity.h).
#pragma once

#include <optional>

namespace blend {

inline constexpr double kPaperRatio = 0.15;

struct RatioRequest {
  double begin = kPaperRatio;       // the ratio, or the start of an automatic one
  bool is_automatic = false;        // calibration and the controller may change it
  std::optional<double> agreement;  // target for an automatic ratio: agreement with full prefill
  double target_s = 0;              // time to first token; 0: as soon as possible

  static RatioRequest fixed(double ratio) { return {ratio, false, {}, 0}; }
  static RatioRequest automatic(double target_s = 0) { return {kPaperRatio, true, {}, target_s}; }
  // Begins at the ratio that keeps this agreement, when the prompt's chunks are known.
  static RatioRequest fidelity(double agreement, double target_s = 0) {
    return {kPaperRatio, true, agreement, target_s};
  }
};

}  // namespace blend
