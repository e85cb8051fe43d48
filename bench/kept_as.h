// The forms of weights and the types of KV caches in memory by name, as --weights and --cache have
// them.
#pragma once

#include <stdexcept>
#include <string>

#include "blend/blend.h"

namespace blend::bench {

inline uint32_t weights_of(const std::string& name) {
  if (name == "auto") return BLEND_WEIGHTS_AUTO;
  if (name == "packed") return BLEND_WEIGHTS_PACKED;
  if (name == "mapped") return BLEND_WEIGHTS_MAPPED;
  if (name == "int8") return BLEND_WEIGHTS_INT8;
  throw std::runtime_error("'" + name + "' is no form of weights that this build knows");
}

inline uint32_t cache_dtype_of(const std::string& name) {
  if (name == "auto") return BLEND_DTYPE_AUTO;
  if (name == "f32") return BLEND_DTYPE_F32;
  if (name == "f16") return BLEND_DTYPE_F16;
  if (name == "bf16") return BLEND_DTYPE_BF16;
  throw std::runtime_error("'" + name + "' is no type of KV caches that this build knows");
}

}  // namespace blend::bench
