// BLEND_RATIO_AUTO for one prompt: what is loaded, what is computed, and how much of it. Here the
// prompt's chunks are priced; control/pass_choice.h chooses.
#pragma once

#include <optional>

#include "control/pass_choice.h"
#include "fusion/prompt.h"
#include "store/read/read_rates.h"

namespace blend {

// What is known of this machine and this store.
struct KnownCosts {
  ReadRates* reads = nullptr;  // null: nothing is known of the store
  const ModelConfig* config = nullptr;
  double spent_s = 0;  // of the fuse, so far
  MachineRates machine = {};
};

// Chooses where there is something to choose by: a machine's times, and a store that knows how fast
// it is. Chunks that are sooner computed than loaded are computed: their sources leave the prompt.
// Places that nothing was read from yet are asked for a layer of the prompt.
std::optional<RatioChoice> choose_by_cost(const KnownCosts& known, const PassRules& rules,
                                          double least, double target_s, Prompt& prompt);

}  // namespace blend
