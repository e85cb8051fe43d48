// Members of a config.json about layers that do not attend.
#include <algorithm>

#include "model/hf_config_reader.h"
#include "model/limits.h"

namespace blend {

// Which layers convolve.
Status HfConfigReader::read_conv() {
  if (!family_.convolves) return Status::ok();
  BLEND_ASSIGN(const bool bias, root_.boolean_or("conv_bias", false));
  if (bias) return {BLEND_E_UNSUPPORTED, "conv_bias: libblend convolves without biases"};
  std::vector<bool> convolves(c_.n_layers, false);
  if (root_.get("layer_types")) {
    BLEND_ASSIGN(convolves, of_type("conv"));
  } else if (const std::optional<JsonView> attending = root_.get("full_attn_idxs")) {
    BLEND_ASSIGN(const Json::Array* const entries, attending->array());
    convolves.assign(c_.n_layers, true);
    for (size_t i = 0; i < entries->size(); ++i) {
      BLEND_ASSIGN(const int64_t layer, attending->element(i).integer(0, c_.n_layers - 1));
      convolves[static_cast<size_t>(layer)] = false;
    }
  }
  const auto n = std::count(convolves.begin(), convolves.end(), true);
  if (n == 0) return Status::ok();
  if (n == static_cast<int64_t>(c_.n_layers)) {
    return {BLEND_E_UNSUPPORTED, "layer_types: a model in which no layer attends"};
  }
  if (c_.d_model % 2 != 0) {
    return make_error(BLEND_E_UNSUPPORTED,
                      "hidden_size is %u, an odd number, in a model that convolves", c_.d_model);
  }
  BLEND_ASSIGN(const int64_t taps, integer_or("conv_L_cache", 3, 1, kMaxTaps));
  c_.mixer.kind = RowMixer::Kind::conv;
  c_.mixer.taps = static_cast<uint32_t>(taps);
  c_.mixer.layers = std::move(convolves);
  return Status::ok();
}

// The layers of `layer_types` that are of this type; the others are "full_attention".
Result<std::vector<bool>> HfConfigReader::of_type(const char* type) const {
  std::vector<bool> out(c_.n_layers, false);
  BLEND_ASSIGN(const JsonView list, root_.need("layer_types"));
  BLEND_ASSIGN(const Json::Array* const entries, list.array());
  if (entries->size() != out.size()) {
    return make_error(BLEND_E_FORMAT, "layer_types has %zu entries for %zu layers", entries->size(),
                      out.size());
  }
  for (size_t i = 0; i < out.size(); ++i) {
    BLEND_ASSIGN(const std::string own, list.element(i).string());
    out[i] = own == type;
    if (out[i] || own == "full_attention") continue;
    return make_error(BLEND_E_UNSUPPORTED, "layer_types[%zu]: '%.40s' is not supported", i,
                      own.c_str());
  }
  return out;
}

// Which layers are Gated DeltaNets, and their heads.
Status HfConfigReader::read_delta() {
  c_.attn_gate = true;
  c_.norm_offset = 1;
  RowMixer m;
  m.kind = RowMixer::Kind::delta;
  m.decay_is_log = true;
  if (root_.get("layer_types")) {
    BLEND_ASSIGN(m.layers, of_type("linear_attention"));
  } else {
    BLEND_ASSIGN(const int64_t every, integer_or("full_attention_interval", 4, 1, kMaxLayers));
    for (int64_t i = 0; i < c_.n_layers; ++i) m.layers.push_back((i + 1) % every != 0);
  }
  BLEND_ASSIGN(m.taps, root_.count_or("linear_conv_kernel_dim", 4, kMaxTaps));
  BLEND_ASSIGN(m.k_heads, root_.count_or("linear_num_key_heads", 16, kMaxHeads));
  BLEND_ASSIGN(m.v_heads, root_.count_or("linear_num_value_heads", 32, kMaxHeads));
  BLEND_ASSIGN(m.k_dim, root_.count_or("linear_key_head_dim", 128, kMaxHeadDim));
  BLEND_ASSIGN(m.v_dim, root_.count_or("linear_value_head_dim", 128, kMaxHeadDim));
  BLEND_RETURN_IF_ERROR(check_state_heads(m, "linear_num_key_heads", "linear_num_value_heads"));
  const auto n = std::count(m.layers.begin(), m.layers.end(), true);
  if (n == static_cast<int64_t>(c_.n_layers)) {
    return {BLEND_E_UNSUPPORTED, "layer_types: a model in which no layer attends"};
  }
  if (n == 0) return {BLEND_E_UNSUPPORTED, "layer_types: no layer is of linear_attention"};
  c_.mixer = std::move(m);
  return Status::ok();
}

}  // namespace blend
