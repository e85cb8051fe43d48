// A line of a measured table as the ABI shows it.
#pragma once

#include <vector>

#include "profile/profile.h"

namespace blend::capi {

// Points to `chunk_prefix`.
blend_measurement describe(const Measurement& m, const std::vector<int32_t>& chunk_prefix);

}  // namespace blend::capi
