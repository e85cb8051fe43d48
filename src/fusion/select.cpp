#include "fusion/select.h"

#include <algorithm>
#include <cmath>

namespace blend {

size_t recompute_budget(double ratio, size_t n_reused) {
  const double rows = ratio * static_cast<double>(n_reused);
  return static_cast<size_t>(std::ceil(rows - 1e-9 * (1.0 + rows)));
}

Result<std::vector<uint32_t>> select_rows(Backend& backend, std::span<const uint32_t> candidates,
                                          std::span<const float> deviation, size_t budget) {
  const size_t k = std::min(budget, candidates.size());
  std::vector<float> scores;
  scores.reserve(candidates.size());
  for (const uint32_t row : candidates) scores.push_back(deviation[row]);
  std::vector<uint32_t> picked(k);
  BLEND_RETURN_IF_ERROR(backend.top_k(scores, k, picked.data()));
  for (uint32_t& index : picked) index = candidates[index];
  return picked;
}

}  // namespace blend
