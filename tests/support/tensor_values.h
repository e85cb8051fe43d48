#pragma once

#include <vector>

#include "model/model_source.h"

namespace blend::test {

// All numbers of a tensor, row by row.
inline std::vector<float> values_of(const TensorView& t) {
  std::vector<float> values(static_cast<size_t>(t.elements()));
  decode_weights(t.dtype, t.blocks, t.data, values.size(), values.data());
  return values;
}

}  // namespace blend::test
