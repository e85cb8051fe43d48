// Members of a Falcon-H1's config.json: Mamba-2s beside attention, and the numbers by which the
// model was scaled as it was trained (muP).
#include <cmath>
#include <iterator>
#include <vector>

#include "model/blocks.h"
#include "model/hf_config_reader.h"
#include "model/hf_mamba.h"
#include "model/limits.h"

namespace blend {
namespace {

// A list of numbers above 0; null: all are 1.
Status read_scales(const JsonView& root, const char* name, std::span<float> to) {
  const std::optional<JsonView> list = root.get(name);
  if (!list) return Status::ok();
  BLEND_ASSIGN(const Json::Array* const entries, list->array());
  if (entries->size() != to.size()) {
    return make_error(BLEND_E_FORMAT, "%s has %zu entries; %zu make sense", name, entries->size(),
                      to.size());
  }
  for (size_t i = 0; i < to.size(); ++i) {
    BLEND_ASSIGN(to[i], list->element(i).positive());
  }
  return Status::ok();
}

}  // namespace

Status HfConfigReader::read_falcon_h1() {
  for (const char* const name : {"attention_bias", "mlp_bias", "projectors_bias"}) {
    BLEND_ASSIGN(const bool asked, root_.boolean_or(name, false));
    if (asked) return make_error(BLEND_E_UNSUPPORTED, "%s is not supported in a falcon_h1", name);
  }
  if (const std::optional<JsonView> window = root_.get("sliding_window")) {
    return window->error(BLEND_E_UNSUPPORTED, "libblend runs a falcon_h1 without a window");
  }
  if (c_.n_layers > kMaxLayers / 2) {
    return make_error(BLEND_E_FORMAT, "num_hidden_layers is %u; at most %u make sense", c_.n_layers,
                      kMaxLayers / 2);
  }
  RowMixer& m = c_.mixer;
  m.kind = RowMixer::Kind::ssm;
  m.decay_is_log = true;
  uint64_t inner = 1024;
  const char* of = "mamba_d_ssm";
  if (is_null(of)) {
    BLEND_ASSIGN(const int64_t expand, integer_or("mamba_expand", 2, 1, 1024));
    inner = static_cast<uint64_t>(expand) * c_.d_model;
    of = "mamba_expand times hidden_size";
  } else {
    BLEND_ASSIGN(const int64_t given, integer_or(of, 1024, 1, kMaxWidth));
    inner = static_cast<uint64_t>(given);
  }
  BLEND_RETURN_IF_ERROR(read_hf_mamba_heads(root_, inner, of, m));
  BLEND_ASSIGN(const bool normed, root_.boolean_or("mamba_rms_norm", false));
  BLEND_ASSIGN(const bool first, root_.boolean_or("mamba_norm_before_gate", true));
  m.norm = !normed ? RowMixer::Norm::none
           : first ? RowMixer::Norm::before_gate
                   : RowMixer::Norm::after_gate;

  float mlp[] = {1, 1};
  BLEND_RETURN_IF_ERROR(read_scales(root_, "mlp_multipliers", mlp));
  BLEND_RETURN_IF_ERROR(read_scales(root_, "ssm_multipliers", m.scales));
  BLEND_ASSIGN(c_.embedding_scale, positive_or("embedding_multiplier", 1));
  BLEND_ASSIGN(c_.logit_scale, positive_or("lm_head_multiplier", 1));
  BLEND_ASSIGN(const float ssm_in, positive_or("ssm_in_multiplier", 1));
  BLEND_ASSIGN(const float ssm_out, positive_or("ssm_out_multiplier", 1));
  BLEND_ASSIGN(const float attention_in, positive_or("attention_in_multiplier", 1));
  BLEND_ASSIGN(const float attention_out, positive_or("attention_out_multiplier", 1));
  BLEND_ASSIGN(const float keys, positive_or("key_multiplier", 1));
  for (float& scale : m.scales) scale *= ssm_in;
  // Q, K and V have no biases, so what attention reads need not be scaled: its scores and its
  // result are.
  c_.attn_scale = c_.score_scale() * attention_in * attention_in * keys;
  c_.result_scales = {attention_in * attention_out, ssm_out, mlp[1]};
  c_.gate_scale = mlp[0];
  std::vector<float> products(std::begin(m.scales), std::end(m.scales));
  products.insert(products.end(), {c_.attn_scale, c_.result_scales.attention});
  for (const float product : products) {
    if (product > 0 && std::isfinite(product)) continue;
    return make_error(BLEND_E_FORMAT,
                      "multipliers of attention or the Mamba-2s have a product of %g; it must be a "
                      "finite number above 0",
                      static_cast<double>(product));
  }
  pair_layers(c_);
  return Status::ok();
}

}  // namespace blend
