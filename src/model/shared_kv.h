// Layers that share K and V with an earlier one, whatever the file's format.
#pragma once

#include <vector>

#include "base/status.h"
#include "model/config.h"

namespace blend {

// Makes each layer from c.own_kv on like the last layer before it of its kind, whose K and V it
// attends over; local: [n_layers] which have a window. FORMAT: there is none.
Status share_kv(ModelConfig& c, const std::vector<bool>& local);

}  // namespace blend
