#include "model/hf_mamba.h"

#include <algorithm>
#include <string>

#include "model/limits.h"

namespace blend {
namespace {

// Which layers are Mamba-2s. Transformers 5 has other names for the types than published files.
Result<std::vector<bool>> mamba_layers(const JsonView& root, uint32_t n_layers) {
  std::optional<JsonView> list = root.get("layer_types");
  if (!list) list = root.get("layers_block_type");
  if (!list) return Status(BLEND_E_UNSUPPORTED, "without layer_types no layer is of attention");
  BLEND_ASSIGN(const Json::Array* const entries, list->array());
  if (entries->size() != n_layers) {
    return make_error(BLEND_E_FORMAT, "layer_types has %zu entries for %u layers", entries->size(),
                      n_layers);
  }
  std::vector<bool> out(n_layers, false);
  for (size_t i = 0; i < out.size(); ++i) {
    BLEND_ASSIGN(const std::string type, list->element(i).string());
    out[i] = type == "mamba" || type == "linear_attention";
    if (out[i] || type == "attention" || type == "full_attention") continue;
    return make_error(BLEND_E_UNSUPPORTED, "layer_types[%zu]: '%.40s' is not supported", i,
                      type.c_str());
  }
  return out;
}

}  // namespace

Status check_hf_steps(const JsonView& root) {
  const std::optional<JsonView> limits = root.get("time_step_limit");
  if (!limits) return Status::ok();
  BLEND_ASSIGN(const Json::Array* const entries, limits->array());
  if (entries->size() == 2) {
    BLEND_ASSIGN(const double least, limits->element(0).number());
    // JSON has no infinity.
    const Json* const tag = (*entries)[1].find("__float__");
    if (least == 0 && tag != nullptr) {
      BLEND_ASSIGN(const std::string most, JsonView(*tag, limits->path()).string());
      if (most == "Infinity") return Status::ok();
    }
  }
  return limits->error(BLEND_E_UNSUPPORTED, "libblend runs steps from 0 to infinity");
}

Status read_hf_mamba(const JsonView& root, ModelConfig& config) {
  RowMixer m;
  m.kind = RowMixer::Kind::ssm;
  m.decay_is_log = true;
  BLEND_ASSIGN(m.layers, mamba_layers(root, config.n_layers));
  const auto n = std::count(m.layers.begin(), m.layers.end(), true);
  if (n == 0) return Status::ok();
  if (n == static_cast<int64_t>(config.n_layers)) {
    return {BLEND_E_UNSUPPORTED, "layer_types: a model in which no layer attends"};
  }
  BLEND_ASSIGN(const uint32_t expand, root.count_or("mamba_expand", 2, 1024));
  BLEND_RETURN_IF_ERROR(read_hf_mamba_heads(root, uint64_t{expand} * config.d_model,
                                            "mamba_expand times hidden_size", m));
  config.mixer = std::move(m);
  return Status::ok();
}

Status read_hf_mamba_heads(const JsonView& root, uint64_t inner, const char* of, RowMixer& m) {
  BLEND_ASSIGN(const bool bias, root.boolean_or("mamba_proj_bias", false));
  if (bias) return {BLEND_E_UNSUPPORTED, "mamba_proj_bias: libblend runs Mamba-2 without them"};
  BLEND_RETURN_IF_ERROR(check_hf_steps(root));
  BLEND_ASSIGN(m.taps_bias, root.boolean_or("mamba_conv_bias", true));
  BLEND_ASSIGN(m.taps, root.count_or("mamba_d_conv", 4, kMaxTaps));
  BLEND_ASSIGN(m.k_heads, root.count_or("mamba_n_groups", 1, kMaxHeads));
  BLEND_ASSIGN(m.v_heads, root.count_or("mamba_n_heads", 128, kMaxHeads));
  BLEND_ASSIGN(m.k_dim, root.count_or("mamba_d_state", 256, kMaxHeadDim));
  uint64_t dim = inner / m.v_heads;
  if (const std::optional<JsonView> given = root.get("mamba_d_head")) {
    if (!given->string().is_ok() || *given->string() != "auto") {
      BLEND_ASSIGN(const int64_t own, given->integer(1, kMaxHeadDim));
      dim = static_cast<uint64_t>(own);
    }
  }
  if (dim == 0 || dim > kMaxHeadDim || dim * m.v_heads != inner) {
    return make_error(BLEND_E_FORMAT,
                      "mamba_n_heads: %u heads of %llu elements do not make up the %llu of %s",
                      m.v_heads, static_cast<unsigned long long>(dim),
                      static_cast<unsigned long long>(inner), of);
  }
  m.v_dim = static_cast<uint32_t>(dim);
  return check_state_heads(m, "mamba_n_groups", "mamba_n_heads");
}

}  // namespace blend
