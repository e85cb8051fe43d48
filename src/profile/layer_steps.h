// LayerSteps: how coarsely each layer is rounded relative to others, by a codec that chooses
// its scales (rans), as measured by calibration. In some models one layer carries nearly all of
// rounding's loss.
#pragma once

#include <cstdint>
#include <vector>

namespace blend {

// A plain value.
struct LayerSteps {
  std::vector<float> factors;  // [n_layers] on the codec's scales; empty: all layers alike

  // Their measured gain on prompts that they were not fitted on, at codec_step 1:
  // KL(reuse of exact chunks || of rounded ones), nats, mean over the prompts.
  double kl_alike = 0;
  double kl_split = 0;
  double gain_margin = 0;  // half the 95 % interval of kl_alike - kl_split over the prompts
  double bits_alike = 0;   // an element of K and V
  double bits_split = 0;
  uint64_t n_prompts = 0;

  bool empty() const { return factors.empty(); }
};

// Bound of a profile's factors.
inline constexpr float kMostLayerStep = 64;
inline bool is_layer_step(float factor) {
  return factor >= 1 / kMostLayerStep && factor <= kMostLayerStep;  // false for NaN
}

}  // namespace blend
