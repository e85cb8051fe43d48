// CodecCost: what a codec that rounds adds to a fuse, as measured by calibration.
#pragma once

#include <cstdint>

namespace blend {

// A plain value. KLs are in nats, means over the prompts.
struct CodecCost {
  uint32_t codec = 0;    // BLEND_CODEC_*
  double kl = 0;         // KL(fused from exact chunks || from rounded ones), as the profile fuses
  double kl_margin = 0;  // half its 95 % interval over the prompts
  double kl_fuse = 0;    // KL(full prefill || fused from exact chunks), at the same tokens
  double bits = 0;       // an element of K and V
  uint64_t n_prompts = 0;
};

}  // namespace blend
