#include "backend/cpu/routing.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "model/limits.h"

namespace blend::cpu {
namespace {

void softmax(float* x, uint32_t n) {
  const float most = *std::max_element(x, x + n);
  float sum = 0;
  for (uint32_t i = 0; i < n; ++i) sum += x[i] = std::exp(x[i] - most);
  for (uint32_t i = 0; i < n; ++i) x[i] /= sum;
}

void sigmoid(float* x, uint32_t n) {
  for (uint32_t i = 0; i < n; ++i) x[i] = 1 / (1 + std::exp(-x[i]));
}

// The best so far, best first. A NaN is never better, so that every index is a valid one.
struct Best {
  uint32_t* index;
  float* score;
  uint32_t most;
  uint32_t n = 0;

  void offer(uint32_t i, float s) {
    if (n == most && !(s > score[n - 1])) return;
    uint32_t at = n < most ? n++ : n - 1;
    for (; at > 0 && s > score[at - 1]; --at) {
      index[at] = index[at - 1];
      score[at] = score[at - 1];
    }
    index[at] = i;
    score[at] = s;
  }
};

// The scores of a group's two best experts together, or its best one's.
template <typename Score>
float score_of_group(uint32_t first, uint32_t size, bool by_best, const Score& score) {
  float best = score(first), second = score(first + 1);
  if (second > best) std::swap(best, second);
  for (uint32_t e = first + 2; e < first + size; ++e) {
    const float s = score(e);
    if (s > best) {
      second = best;
      best = s;
    } else if (s > second) {
      second = s;
    }
  }
  return by_best ? best : best + second;
}

}  // namespace

void choose_experts(const Experts& experts, float* scores, const float* bias, uint32_t* chosen,
                    float* weights) {
  experts.sigmoid ? sigmoid(scores, experts.count) : softmax(scores, experts.count);
  const auto score = [&](uint32_t e) { return bias == nullptr ? scores[e] : scores[e] + bias[e]; };
  const uint32_t size = experts.count / experts.groups;
  uint32_t groups[kMaxExpertGroups] = {};
  if (experts.used_groups < experts.groups) {
    float of_groups[kMaxExpertGroups];
    Best best{groups, of_groups, experts.used_groups};
    for (uint32_t g = 0; g < experts.groups; ++g) {
      best.offer(g, score_of_group(g * size, size, experts.groups_by_best, score));
    }
    std::sort(groups, groups + experts.used_groups);
  } else {
    std::iota(groups, groups + experts.groups, 0u);
  }
  Best best{chosen, weights, experts.used};
  for (uint32_t i = 0; i < experts.used_groups; ++i) {
    for (uint32_t e = groups[i] * size; e < (groups[i] + 1) * size; ++e) best.offer(e, score(e));
  }
  const uint32_t n = best.n;
  std::sort(chosen, chosen + n);
  float sum = 0;
  for (uint32_t i = 0; i < n; ++i) sum += scores[chosen[i]];
  // The chosen may have no score to speak of: with a bias, or by sigmoid.
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
