// The forms of weights in memory by name, as --weights has them.
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

}  // namespace blend::bench
