// BLEND_RATIO_AUTO for one prompt: which chunks are loaded, which are computed, and the ratio. This
// file estimates the loading time of each chunk; control/pass_choice.h chooses.
#pragma once

#include <optional>

#include "control/pass_choice.h"
#include "fusion/prompt/prompt.h"
#include "store/read/read_rates.h"

namespace blend {

// The known speed of this machine and this store.
struct KnownCosts {
  ReadRates* reads = nullptr;  // null: nothing is known of the store
  const ModelConfig* config = nullptr;
  double spent_s = 0;  // by the fuse, so far
  MachineRates machine = {};
};

// Chooses if the machine's times and the store's read rates are known, otherwise gives nothing.
// Chunks that are computed sooner than loaded lose their sources in the prompt. A tier and codec
// from which nothing was read yet is measured by reading a layer of the prompt.
std::optional<RatioChoice> choose_by_cost(const KnownCosts& known, const PassRules& rules,
                                          double least, double target_s, Prompt& prompt);

}  // namespace blend
