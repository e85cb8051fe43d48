// LayerSteps: how much coarser or finer than others each layer is rounded by a codec that chooses
// its steps (rans), as calibration measured it. In some models one layer carries nearly all that
// rounding loses.
#pragma once

#include <cstdint>
#include <vector>

namespace blend {

// A plain value.
struct LayerSteps {
  std::vector<float> factors;  // [n_layers] of the codec's steps; empty: all layers alike

  // What they were measured to be worth on prompts that they were not fitted on, at codec_step 1:
  // KL(reuse of exact chunks || of rounded ones), nats, mean over the prompts.
  double kl_alike = 0;
  double kl_split = 0;
  double gain_margin = 0;  // half the 95 % interval of kl_alike - kl_split over the prompts
  double bits_alike = 0;   // an element of K and V
  double bits_split = 0;
  uint64_t n_prompts = 0;

  bool empty() const { return factors.empty(); }
};

// A factor that a profile may hold.
inline constexpr float kMostLayerStep = 64;
inline bool is_layer_step(float factor) {
  return factor >= 1 / kMostLayerStep && factor <= kMostLayerStep;  // a NaN is none
}

}  // namespace blend
