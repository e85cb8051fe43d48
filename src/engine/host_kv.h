// Hosts that keep K and V of a model themselves, in a cache with rows of one width for all layers.
#pragma once

#include "base/status.h"
#include "model/config.h"

namespace blend {

// UNSUPPORTED: such a cache cannot hold what this model keeps of a row.
Status check_host_kv(const ModelConfig& config);

}  // namespace blend
