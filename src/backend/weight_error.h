// The error of a weight that is not finite.
#pragma once

#include <cmath>
#include <string>

#include "base/status.h"
#include "model/model_source.h"

namespace blend {

// The error for `value`, found at element `index` of `tensor`.
inline Status not_finite(const TensorView& tensor, size_t index, float value) {
  std::string place;
  if (tensor.shape.size() == 2) {
    const size_t cols = static_cast<size_t>(tensor.shape[1]);
    place = std::to_string(index / cols) + ", " + std::to_string(index % cols);
  } else {
    place = std::to_string(index);
  }
  return make_error(BLEND_E_NUMERIC,
                    "tensor '%s' holds %s at [%s]: the weights are damaged; fetch or convert the "
                    "model again",
                    tensor.name.c_str(), std::isnan(value) ? "a NaN" : "an infinity",
                    place.c_str());
}

}  // namespace blend
