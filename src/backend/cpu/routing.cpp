#include "backend/cpu/routing.h"

#include <algorithm>
#include <cmath>

namespace blend::cpu {
namespace {

void softmax(float* x, uint32_t n) {
  const float most = *std::max_element(x, x + n);
  float sum = 0;
  for (uint32_t i = 0; i < n; ++i) sum += x[i] = std::exp(x[i] - most);
  for (uint32_t i = 0; i < n; ++i) x[i] /= sum;
}

}  // namespace

void choose_experts(const Experts& experts, float* scores, const float* bias, uint32_t* chosen,
                    float* weights) {
  softmax(scores, experts.count);
  // The best so far, best first; a NaN is never better, so that every index is a valid one.
  uint32_t n = 0;
  for (uint32_t e = 0; e < experts.count; ++e) {
    const float score = bias == nullptr ? scores[e] : scores[e] + bias[e];
    if (n == experts.used && !(score > weights[n - 1])) continue;
    uint32_t at = n < experts.used ? n++ : n - 1;
    for (; at > 0 && score > weights[at - 1]; --at) {
      chosen[at] = chosen[at - 1];
      weights[at] = weights[at - 1];
    }
    chosen[at] = e;
    weights[at] = score;
  }
  std::sort(chosen, chosen + n);
  float sum = 0;
  for (uint32_t i = 0; i < n; ++i) sum += scores[chosen[i]];
  // With a bias the chosen may have no score to speak of.
  const float factor = experts.normalised ? experts.scale / std::max(sum, 1e-12f) : experts.scale;
  for (uint32_t i = 0; i < n; ++i) weights[i] = scores[chosen[i]] * factor;
}

void sort_by_expert(const uint32_t* chosen, uint32_t n_rows, uint32_t n_used, uint32_t n_experts,
                    const SortedRows& out) {
  const size_t n = size_t{n_rows} * n_used;
  std::fill_n(out.first, n_experts + 1, 0u);
  for (size_t i = 0; i < n; ++i) ++out.first[chosen[i] + 1];
  for (uint32_t e = 0; e < n_experts; ++e) out.first[e + 1] += out.first[e];
  // first[e] counts up through the places of e, and is put back after that.
  for (size_t i = 0; i < n; ++i) {
    const uint32_t place = out.first[chosen[i]]++;
    out.row[place] = static_cast<uint32_t>(i / n_used);
    out.place[i] = place;
  }
  for (uint32_t e = n_experts; e > 0; --e) out.first[e] = out.first[e - 1];
  out.first[0] = 0;
}

}  // namespace blend::cpu
