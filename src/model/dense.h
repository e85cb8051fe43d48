// The matrices that a pooled vector goes through, where a model for embeddings has some.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "model/hf_tensors.h"
#include "model/model_source.h"

namespace blend {

// They take d_model elements and give as many: nothing here knows vectors of another width.
// FORMAT: one does not take what the one before it gives.
Status check_dense(std::span<const TensorView> matrices, const ModelConfig& config);

// Those of a Hugging Face directory, which sentence-transformers lists in modules.json.
struct HfDense {
  std::vector<HfTensors> files;
  std::vector<TensorView> matrices;  // in `files`
};
// None without a modules.json. UNSUPPORTED names what else it asks for after pooling.
Result<HfDense> open_hf_dense(const std::string& directory);

}  // namespace blend
