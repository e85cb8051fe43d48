// RatioRequest: which share of the reused rows is recomputed, as the host asks for it.
//
// The host fixes the ratio, or leaves it to the controller (BLEND_RATIO_AUTO): that begins at the
// least that calibration allows and may only raise it, by how long prefills take on this machine
// and by the time that the host gives (auto_ratio.h). Or it states how often answers are to agree
// with full prefill (BLEND_RATIO_FIDELITY): then the controller begins at what checked answers have
// shown (control/fidelity.h).
#pragma once

#include <optional>

namespace blend {

inline constexpr double kPaperRatio = 0.15;

struct RatioRequest {
  double begin = kPaperRatio;       // the ratio, or where an automatic one begins
  bool is_automatic = false;        // calibration and the controller may say otherwise
  std::optional<double> agreement;  // to be kept with full prefill, by an automatic one
  double target_s = 0;              // until the first token; 0: as soon as can be

  static RatioRequest fixed(double ratio) { return {ratio, false, {}, 0}; }
  static RatioRequest automatic(double target_s = 0) { return {kPaperRatio, true, {}, target_s}; }
  // It begins at what keeps this agreement, once the prompt's chunks are known.
  static RatioRequest fidelity(double agreement, double target_s = 0) {
    return {kPaperRatio, true, agreement, target_s};
  }
};

}  // namespace blend
