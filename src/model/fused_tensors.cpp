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
constexpr TensorRole kSharedGateUp[] = {TensorRole::shared_gate, TensorRole::shared_up};
constexpr TensorRole kExpertGateUp[] = {TensorRole::expert_gate, TensorRole::expert_up};
constexpr TensorRole kConvIn[] = {TensorRole::conv_b, TensorRole::conv_c, TensorRole::conv_x};
constexpr TensorRole kDeltaQkvz[] = {TensorRole::delta_qkv, TensorRole::delta_z};
constexpr TensorRole kDeltaBa[] = {TensorRole::delta_b, TensorRole::delta_a};
constexpr TensorRole kSsmIn[] = {TensorRole::ssm_z, TensorRole::ssm_xbc, TensorRole::ssm_dt};
constexpr FusedTensor kFused[] = {FusedTensor::qkv,
                                  FusedTensor::qkv_bias,
                                  FusedTensor::gate_up,
                                  FusedTensor::shared_gate_up,
                                  FusedTensor::expert_gate_up,
                                  FusedTensor::conv_in,
                                  FusedTensor::delta_qkvz,
                                  FusedTensor::delta_ba,
                                  FusedTensor::ssm_in};

std::span<const TensorRole> roles_of(FusedTensor tensor) {
  switch (tensor) {
    case FusedTensor::qkv:
      return kQkv;
    case FusedTensor::qkv_bias:
      return kQkvBias;
    case FusedTensor::gate_up:
      return kGateUp;
    case FusedTensor::shared_gate_up:
      return kSharedGateUp;
    case FusedTensor::expert_gate_up:
      return kExpertGateUp;
    case FusedTensor::conv_in:
      return kConvIn;
    case FusedTensor::delta_qkvz:
      return kDeltaQkvz;
    case FusedTensor::delta_ba:
      return kDeltaBa;
    case FusedTensor::ssm_in:
      return kSsmIn;
    case FusedTensor::none:
      break;
  }
  return {};
}

// Of the tensor that holds a role and its neighbours.
std::vector<int64_t> fused_shape(TensorRole role, uint32_t layer, const ModelConfig& config) {
  std::vector<int64_t> shape = tensor_shape(role, config, layer);
  shape[0] = 0;
  for (const TensorRole r : roles_of(fused_tensor_of(role))) {
    shape[0] += tensor_shape(r, config, layer)[0];
  }
  return shape;
}

}  // namespace

FusedTensor fused_tensor_of(TensorRole role) {
  for (const FusedTensor tensor : kFused) {
    for (const TensorRole part : roles_of(tensor)) {
      if (part == role) return tensor;
    }
  }
  return FusedTensor::none;
}

Result<TensorView> part_of_fused(TensorView whole, TensorRole role, uint32_t layer,
                                 const ModelConfig& config) {
  const std::vector<int64_t> part = tensor_shape(role, config, layer);
  const std::vector<int64_t> shape = fused_shape(role, layer, config);
  int64_t begin = 0;
  for (const TensorRole r : roles_of(fused_tensor_of(role))) {
    if (r == role) break;
    begin += tensor_shape(r, config, layer)[0];
  }
  BLEND_RETURN_IF_ERROR(check_shape(whole, shape));
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

Result<TensorView> part_of_expert(TensorView whole, TensorRole role, uint32_t layer,
                                  uint32_t expert, bool fused, const ModelConfig& config) {
  const std::vector<int64_t> one =
      fused ? fused_shape(role, layer, config) : tensor_shape(role, config, layer);
  std::vector<int64_t> shape = {config.experts.count};
  shape.insert(shape.end(), one.begin(), one.end());
  BLEND_RETURN_IF_ERROR(check_shape(whole, shape));
  whole.data = whole.row(int64_t{expert} * one[0]);
  whole.shape = one;
  return fused ? part_of_fused(std::move(whole), role, layer, config) : Result<TensorView>(whole);
}

Result<TensorView> part_of_stream(TensorView whole, TensorRole role, uint32_t stream,
                                  const ModelConfig& config) {
  const std::vector<int64_t> one = tensor_shape(role, config, 0);
  BLEND_RETURN_IF_ERROR(check_shape(whole, {config.n_streams - 1, one[0], one[1]}));
  whole.data = whole.row(int64_t{stream} * one[0]);
  whole.shape = one;
  return whole;
}

}  // namespace blend
