#include "engine/sampler.h"

#include <algorithm>
#include <cmath>

namespace blend {

Result<Sampler> Sampler::create(const SamplerOptions& options) {
  // Written so that NaN fails too.
  if (!(options.temperature >= 0.0f) || std::isinf(options.temperature)) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "temperature %g must be 0 (greedy) or positive",
                      static_cast<double>(options.temperature));
  }
  if (!(options.top_p > 0.0f && options.top_p <= 1.0f)) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "top_p %g must be in (0, 1]; 1 turns it off",
                      static_cast<double>(options.top_p));
  }
  if (!(options.min_p >= 0.0f && options.min_p <= 1.0f)) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "min_p %g must be in [0, 1]; 0 turns it off",
                      static_cast<double>(options.min_p));
  }
  return Sampler(options);
}

// splitmix64 (Steele, Lea, Flood 2014): std distributions differ between standard libraries.
double Sampler::uniform() {
  state_ += 0x9e3779b97f4a7c15ull;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  z ^= z >> 31;
  return static_cast<double>(z >> 11) * 0x1p-53;
}

// Sorts until at least the best n are in order; a draw looks at few of a vocabulary.
void Sampler::sort_best(size_t n) {
  constexpr size_t kFirst = 64;
  if (n <= n_sorted_) return;
  const size_t more = std::min(std::max({n, kFirst, 4 * n_sorted_}), candidates_.size());
  const auto at = [&](size_t i) { return candidates_.begin() + static_cast<std::ptrdiff_t>(i); };
  std::partial_sort(at(n_sorted_), at(more), candidates_.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  n_sorted_ = more;
}

int32_t Sampler::sample(std::span<const float> logits) {
  if (options_.temperature == 0.0f) {
    return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  }
  candidates_.clear();
  n_sorted_ = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isinf(logits[i])) continue;
    candidates_.emplace_back(logits[i], static_cast<int32_t>(i));
  }
  if (options_.top_k > 0 && options_.top_k < candidates_.size()) {
    sort_best(options_.top_k);
    candidates_.resize(options_.top_k);
    n_sorted_ = options_.top_k;
  }
  sort_best(1);

  const double top = candidates_.front().first;
  const auto weight = [&](float logit) {
    return std::exp((static_cast<double>(logit) - top) / options_.temperature);
  };
  double total = 0.0;
  for (const auto& c : candidates_) total += weight(c.first);
  if (options_.top_p < 1.0f) {
    // The smallest set of most likely tokens whose probability reaches top_p.
    double sum = 0.0;
    size_t n = 0;
    while (n < candidates_.size() && sum < options_.top_p * total) {
      sort_best(n + 1);
      sum += weight(candidates_[n++].first);
    }
    candidates_.resize(n);
    n_sorted_ = std::min(n_sorted_, n);
    total = sum;
  }
  if (options_.min_p > 0.0f) {
    // The likeliest has weight 1 and stays first; the order of the others is kept too.
    size_t n = 0;
    total = 0.0;
    for (const auto& c : candidates_) {
      const double w = weight(c.first);
      if (w < options_.min_p) continue;
      total += w;
      candidates_[n++] = c;
    }
    candidates_.resize(n);
    n_sorted_ = std::min(n_sorted_, n);
  }
  double target = uniform() * total;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    sort_best(i + 1);
    target -= weight(candidates_[i].first);
    if (target < 0.0) return candidates_[i].second;
  }
  return candidates_.back().second;  // rounding left a remainder
}

}  // namespace blend
