// Schedule: the layers at which rows are chosen, and how many go on (CacheBlend 4.3, figure 9).
//
// With one check layer a share r of the reused rows goes on to all later layers. Gradual filtering
// has several, with falling ratios: each chooses among the rows that passed the one before. So the
// first, noisy measurement does not decide alone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "control/check_layer.h"

namespace blend {

// Checks that layers rise, ratios in [0, 1] do not rise, and the model has every layer.
// `first_layer`: the least layer that is allowed.
Status check_schedule(std::span<const CheckLayer> schedule, uint32_t first_layer,
                      uint32_t n_layers);

// Mean ratio over the layers after the first check layer; its own ratio if it is the last layer.
double mean_ratio(std::span<const CheckLayer> schedule, uint32_t n_layers);

// `n_checks` check layers from `first_layer` on, evenly spaced over the layers after it, with
// ratios that fall linearly from about 1.5 r to 0.5 r (less if 1.5 r is above 1) and have the mean
// r. Fewer check layers if the model has fewer layers.
Schedule falling_schedule(double ratio, uint32_t first_layer, uint32_t n_checks, uint32_t n_layers);

// The check at which the drift maps may begin: the first that measures. Null: none.
const CheckLayer* first_measured(const Schedule& schedule);

}  // namespace blend
