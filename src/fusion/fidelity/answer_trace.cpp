#include "fusion/fidelity/answer_trace.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace blend {
namespace {

int32_t likeliest_of(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

double log_sum(std::span<const float> logits) {
  const auto top = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  double sum = 0;
  for (const float l : logits) sum += std::exp(static_cast<double>(l) - top);
  return top + std::log(sum);
}

// The n largest logits, in no particular order.
std::vector<std::pair<int32_t, float>> largest(std::span<const float> logits, size_t n) {
  const auto more = [](const auto& a, const auto& b) { return a.second > b.second; };
  std::vector<std::pair<int32_t, float>> heap;  // the smallest on top
  for (size_t i = 0; i < logits.size(); ++i) {
    if (heap.size() == n) {
      if (logits[i] <= heap.front().second) continue;
      std::pop_heap(heap.begin(), heap.end(), more);
      heap.pop_back();
    }
    heap.emplace_back(static_cast<int32_t>(i), logits[i]);
    std::push_heap(heap.begin(), heap.end(), more);
  }
  return heap;
}

// The probability of all other tokens; at least a tiny number, so that it has a logarithm.
double others_of(double likeliest) {
  return std::max(1 - likeliest, static_cast<double>(std::numeric_limits<float>::epsilon()));
}

}  // namespace

void AnswerTrace::note(uint32_t n_rows, std::span<const float> logits) {
  if (full() || n_rows != n_prompt_ + positions_.size()) return;
  Position position;
  position.preferred = likeliest_of(logits);
  if (positions_.size() < kKlPositions) {
    const double all = log_sum(logits);
    double sum = 0;
    position.likeliest = largest(logits, kLikeliest);
    for (auto& [token, logit] : position.likeliest) {
      const double log_q = static_cast<double>(logit) - all;
      sum += std::exp(log_q);
      logit = static_cast<float>(log_q);
    }
    position.others = static_cast<float>(std::log(others_of(sum)));
  }
  positions_.push_back(std::move(position));
}

void AnswerTrace::compare(uint32_t position, std::span<const float> full,
                          CheckedAnswer& out) const {
  const Position& fused = positions_[position];
  ++out.n_tokens;
  out.n_agree += likeliest_of(full) == fused.preferred ? 1 : 0;
  if (fused.likeliest.empty()) return;
  const double all = log_sum(full);
  double kl = 0, sum = 0;
  for (const auto& [token, log_q] : fused.likeliest) {
    const double log_p = static_cast<double>(full[static_cast<size_t>(token)]) - all;
    sum += std::exp(log_p);
    kl += std::exp(log_p) * (log_p - static_cast<double>(log_q));
  }
  const double others = others_of(sum);
  kl += others * (std::log(others) - static_cast<double>(fused.others));
  ++out.n_kl;
  out.kl += std::max(kl, 0.0);  // rounding may make it negative
}

}  // namespace blend
