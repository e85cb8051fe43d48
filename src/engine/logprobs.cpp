#include "engine/logprobs.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace blend {

std::vector<Logprob> logprobs(std::span<const float> logits, int32_t token, uint32_t n) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double total = 0.0;
  for (const float l : logits) total += std::exp(static_cast<double>(l) - top);
  const double log_total = top + std::log(total);
  const auto of = [&](int32_t id) {
    const double l = logits[static_cast<size_t>(id)];
    return Logprob{id, static_cast<float>(l - log_total)};
  };
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto end = ids.begin() + static_cast<std::ptrdiff_t>(std::min<size_t>(n, ids.size()));
  std::partial_sort(ids.begin(), end, ids.end(), [&](int32_t a, int32_t b) {
    const float la = logits[static_cast<size_t>(a)], lb = logits[static_cast<size_t>(b)];
    return la != lb ? la > lb : a < b;
  });
  std::vector<Logprob> out{of(token)};
  for (auto id = ids.begin(); id != end; ++id) out.push_back(of(*id));
  return out;
}

}  // namespace blend
