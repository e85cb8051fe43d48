// Members of a config.json that describe Mamba-2s among attending layers (Granite 4) or beside
// attention (Falcon-H1).
#pragma once

#include "base/json_reader.h"
#include "model/config.h"

namespace blend {

// config.mixer of a granitemoehybrid, whose other members are known; none where all layers attend.
// FORMAT names the member that makes no sense, UNSUPPORTED the unsupported feature.
Status read_hf_mamba(const JsonView& root, ModelConfig& config);

// The heads of a Mamba-2 and its convolution. `inner`: the elements of all value heads
// together, which are `of`, for messages.
Status read_hf_mamba_heads(const JsonView& root, uint64_t inner, const char* of, RowMixer& mixer);

// UNSUPPORTED where `time_step_limit` is not [0, infinity]: transformers applies it to prompts and
// not to single tokens.
Status check_hf_steps(const JsonView& root);

}  // namespace blend
