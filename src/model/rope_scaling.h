// RoPE's frequencies as models stretch them for long contexts: each scheme is a factor per
// frequency (RopeParams::freq_factors) and, for YaRN, one for attention.
#pragma once

#include <cstdint>
#include <vector>

#include "model/config.h"

namespace blend {

// Llama 3.1 ("llama3"): frequencies that rotate less than low_freq_factor times within the original
// context are divided by `factor`, those that rotate more than high_freq_factor times stay, and
// those between are interpolated. [rotary_dim / 2].
struct Llama3Scaling {
  double factor = 8;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  double original_context = 8192;
};
std::vector<float> llama3_factors(uint32_t rotary_dim, double theta, const Llama3Scaling& s);

// YaRN (Peng et al. 2023): the frequencies that rotate more than beta_fast times within the
// original context stay, those that rotate less than beta_slow times are divided by `factor`, with
// a ramp over the frequencies between. [rotary_dim / 2].
struct YarnScaling {
  double factor = 1;
  double original_context = 0;
  double beta_fast = 32;
  double beta_slow = 1;
  bool whole_dimensions = true;  // the ramp's ends are rounded outwards ("truncate")
};
std::vector<float> yarn_factors(uint32_t rotary_dim, double theta, const YarnScaling& s);
// LongRoPE (Ding et al. 2024) has factors of its own for every frequency; this is the factor that
// multiplies Q and K, for a context `factor` times the original.
double longrope_attention_factor(double factor, double original_context);
// YaRN's factor on Q and K for a context `factor` times the original: 0.1 ln(factor) + 1.
double yarn_attention_factor(double factor);

}  // namespace blend
