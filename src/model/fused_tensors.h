// Tensors that hold several roles, one above the other: Q, K and V, and gate and up. Phi-3 is
// trained with them, and converters make them of other models.
#pragma once

#include "model/model_source.h"

namespace blend {

enum class FusedTensor : uint8_t { none, qkv, qkv_bias, gate_up };

// Which of them a role is in, where a file has them.
FusedTensor fused_tensor_of(TensorRole role);

// The rows of `role` in `whole`, the tensor that holds it and its neighbours. FORMAT where that has
// another shape than they have together.
Result<TensorView> part_of_fused(TensorView whole, TensorRole role, const ModelConfig& config);

}  // namespace blend
