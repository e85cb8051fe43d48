// A layer at which rows are chosen, and how many go on. A fuse follows a schedule of check layers
// (fusion/request/schedule.h), and the cost model counts by it.
#pragma once

#include <cstdint>
#include <vector>

namespace blend {

struct CheckLayer {
  uint32_t layer = 1;
  double ratio = 0.15;  // of the reused rows, recomputed after this layer
};
using Schedule = std::vector<CheckLayer>;

}  // namespace blend
