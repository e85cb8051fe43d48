// Tensors that hold several roles, one above the other: Q, K and V, gate and up, a convolution's
// B, C and X, and what a Gated DeltaNet or a Mamba-2 projects. Phi-3, LFM2, Qwen3-Next and Mamba-2
// are trained with them, and converters make them for other models. Those of experts hold the same
// role of every expert, and those of streams that of every stream, one after another.
#pragma once

#include "model/model_source.h"

namespace blend {

enum class FusedTensor : uint8_t {
  none,
  qkv,
  qkv_bias,
  gate_up,
  shared_gate_up,
  expert_gate_up,
  conv_in,
  delta_qkvz,
  delta_ba,
  ssm_in,
};

// The fused tensor that holds a role, in files that have it.
FusedTensor fused_tensor_of(TensorRole role);

// The rows of `role` in `whole`, the tensor that holds it and its neighbours. FORMAT where its
// shape differs from their combined shape.
Result<TensorView> part_of_fused(TensorView whole, TensorRole role, uint32_t layer,
                                 const ModelConfig& config);

// The matrix of one expert in `whole`, [experts.count, rows, cols], where rows are those of `role`,
// or where `fused` those of its neighbours too. FORMAT where the shape is another.
Result<TensorView> part_of_expert(TensorView whole, TensorRole role, uint32_t layer,
                                  uint32_t expert, bool fused, const ModelConfig& config);

// The matrix of stream `stream` + 1 in `whole`, [n_streams - 1, rows, cols]. FORMAT where the shape
// is another.
Result<TensorView> part_of_stream(TensorView whole, TensorRole role, uint32_t stream,
                                  const ModelConfig& config);

}  // namespace blend
