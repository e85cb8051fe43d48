#include "model/rope_scaling.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace blend {
namespace {

constexpr double kTurn = 2 * std::numbers::pi;

// The frequency i, in radians a position.
double frequency(uint32_t i, uint32_t rotary_dim, double theta) {
  return std::pow(theta, -2.0 * i / rotary_dim);
}

}  // namespace

std::vector<float> llama3_factors(uint32_t rotary_dim, double theta, const Llama3Scaling& s) {
  std::vector<float> factors(rotary_dim / 2);
  for (uint32_t i = 0; i < rotary_dim / 2; ++i) {
    const double turns = s.original_context * frequency(i, rotary_dim, theta) / kTurn;
    double slowed = 1;  // the frequency's share of what it was
    if (turns < s.low_freq_factor) {
      slowed = 1 / s.factor;
    } else if (turns <= s.high_freq_factor) {
      const double kept = (turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
      slowed = (1 - kept) / s.factor + kept;
    }
    factors[i] = static_cast<float>(1 / slowed);
  }
  return factors;
}

std::vector<float> yarn_factors(uint32_t rotary_dim, double theta, const YarnScaling& s) {
  // The (fractional) index of the frequency that rotates n times.
  const auto index_of = [&](double n) {
    return rotary_dim * std::log(s.original_context / (n * kTurn)) / (2 * std::log(theta));
  };
  double low = index_of(s.beta_fast), high = index_of(s.beta_slow);
  if (s.whole_dimensions) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, rotary_dim - 1.0);
  if (low == high) high += 0.001;
  std::vector<float> factors(rotary_dim / 2);
  for (uint32_t i = 0; i < rotary_dim / 2; ++i) {
    const double stretched = std::clamp((i - low) / (high - low), 0.0, 1.0);
    factors[i] = static_cast<float>(1 / (stretched / s.factor + 1 - stretched));
  }
  return factors;
}

double longrope_attention_factor(double factor, double original_context) {
  return factor <= 1 ? 1.0 : std::sqrt(1 + std::log(factor) / std::log(original_context));
}

double yarn_attention_factor(double factor) {
  return factor <= 1 ? 1.0 : 0.1 * std::log(factor) + 1.0;
}

}  // namespace blend
