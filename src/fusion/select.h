// Select: which reused rows are recomputed (CacheBlend 4.2-4.3, "high KV deviation").
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"

namespace blend {

// ceil(ratio * n_reused): the number of rows the budget pays for. A product that is whole but for
// rounding is not rounded up.
size_t recompute_budget(double ratio, size_t n_reused);

// Of `candidates` (rows, ascending), those with the largest deviation, at most `budget`; ascending.
// deviation: [n_rows of the prompt], indexed by row.
Result<std::vector<uint32_t>> select_rows(Backend& backend, std::span<const uint32_t> candidates,
                                          std::span<const float> deviation, size_t budget);

}  // namespace blend
