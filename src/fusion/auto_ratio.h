// AutoRatio: BLEND_RATIO_AUTO for one prompt: what is loaded, what is computed, and how much of it,
// chosen by how long the pass would take (expected_pass.h).
#pragma once

#include <functional>
#include <optional>

#include "fusion/expected_pass.h"
#include "fusion/prompt.h"
#include "fusion/ratio_choice.h"
#include "store/read_rates.h"

namespace blend {

// What layers take beside a pass, of what they took: reader and compute share the cores, and a
// device waits while the reader waits for one.
inline constexpr double kReadsBeside = 1.1;

// What a selection does with a prompt.
struct PassRules {
  std::function<Schedule(double ratio)> schedule;
  std::optional<uint32_t> asks_upto = {};  // rows_by_layer()
  uint32_t first_stored_layer = 0;
};

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
//
// The soonest is found with the ratio `least`. It then rises as far as that costs no time, or no
// more than the host gives (target_s; 0: it gives none), up to computing everything.
std::optional<RatioChoice> choose_by_cost(const KnownCosts& known, const PassRules& rules,
                                          double least, double target_s, Prompt& prompt);

}  // namespace blend
