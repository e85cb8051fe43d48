// The feed-forward of a gpt-oss as a Hugging Face directory holds it: rows of gate and up
// alternate, and matrices are transposed, or in MXFP4 with blocks and scales apart.
#pragma once

#include <string>
#include <vector>

#include "model/model_source.h"

namespace blend::test {

struct HfRawTensor {
  std::string name;  // after "model.layers.<layer>."
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};
std::vector<HfRawTensor> gpt_oss_feed_forward(const ModelSource& source, uint32_t layer);

}  // namespace blend::test
