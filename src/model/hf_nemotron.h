// config.json of a Nemotron-H, and the names of its tensors.
#pragma once

#include "model/hf_config.h"
#include "model/model_source.h"

namespace blend {

// As read_hf_config(), of the model_type nemotron_h.
Result<HfConfig> read_hf_nemotron(const JsonView& root);

// "mixer.q_proj.weight"; what a layer has follows its number. Null: such a model has none.
const char* hf_nemotron_name(TensorRole role);

}  // namespace blend
