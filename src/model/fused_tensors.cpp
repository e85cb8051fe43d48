#include "model/fused_tensors.h"

#include <span>

#include "model/tensor_table.h"

namespace blend {
namespace {

// In the order of their rows.
constexpr TensorRole kQkv[] = {TensorRole::attn_q, TensorRole::attn_k, TensorRole::attn_v};
constexpr TensorRole kQkvBias[] = {TensorRole::attn_q_bias, TensorRole::attn_k_bias,
                                   TensorRole::attn_v_bias};
constexpr TensorRole kGateUp[] = {TensorRole::ffn_gate, TensorRole::ffn_up};

std::span<const TensorRole> roles_of(FusedTensor tensor) {
  switch (tensor) {
    case FusedTensor::qkv:
      return kQkv;
    case FusedTensor::qkv_bias:
      return kQkvBias;
    case FusedTensor::gate_up:
      return kGateUp;
    case FusedTensor::none:
      break;
  }
  return {};
}

}  // namespace

FusedTensor fused_tensor_of(TensorRole role) {
  for (const auto tensor : {FusedTensor::qkv, FusedTensor::qkv_bias, FusedTensor::gate_up}) {
    for (const TensorRole part : roles_of(tensor)) {
      if (part == role) return tensor;
    }
  }
  return FusedTensor::none;
}

Result<TensorView> part_of_fused(TensorView whole, TensorRole role, const ModelConfig& config) {
  const std::vector<int64_t> part = tensor_shape(role, config);
  std::vector<int64_t> shape = part;  // of the whole
  shape[0] = 0;
  int64_t begin = 0;
  for (const TensorRole r : roles_of(fused_tensor_of(role))) {
    if (r == role) begin = shape[0];
    shape[0] += tensor_shape(r, config)[0];
  }
  if (whole.shape != shape) {
    return make_error(
        BLEND_E_FORMAT, "tensor '%s' has the shape %s; the hyperparameters ask for %s",
        whole.name.c_str(), shape_text(whole.shape).c_str(), shape_text(shape).c_str());
  }
  if (part.size() == 1) {
    if (whole.blocks != BlockType::none) {
      return make_error(BLEND_E_UNSUPPORTED,
                        "tensor '%s' is a quantized vector of several; libblend reads F32, F16 and "
                        "BF16 there",
                        whole.name.c_str());
    }
    whole.data += static_cast<size_t>(begin) * static_cast<size_t>(dtype_size(whole.dtype));
  } else {
    whole.data = whole.row(begin);
  }
  whole.shape = part;
  return whole;
}

}  // namespace blend
