// A layer at which rows are chosen, and how many go on. The schedule is what costs are reckoned by,
// and what a fuse follows (fusion/schedule.h).
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
