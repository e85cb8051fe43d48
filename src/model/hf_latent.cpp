// Members of a config.json about attention over latent rows.
#include <cmath>

#include "model/hf_config_reader.h"
#include "model/limits.h"
#include "model/rope_scaling.h"

namespace blend {
namespace {

// The norms of latents have this in transformers, whatever rms_norm_eps says.
constexpr float kLatentEps = 1e-6f;

// What transformers takes where a file does not say.
struct UsualLatent {
  int64_t q_rank = 1536, rank = 512, rope = 64, nope = 128, value = 128;
};
constexpr UsualLatent kGlmLite = {.q_rank = 768, .nope = 192, .value = 256};

}  // namespace

Status HfConfigReader::read_latent() {
  const UsualLatent usual = family_.model_type == "glm4_moe_lite" ? kGlmLite : UsualLatent();
  Latent& l = c_.latent;
  const auto read = [&](const char* name, int64_t otherwise, int64_t max, uint32_t& to) -> Status {
    BLEND_ASSIGN(const int64_t n, integer_or(name, otherwise, 1, max));
    to = static_cast<uint32_t>(n);
    return Status::ok();
  };
  BLEND_RETURN_IF_ERROR(read("kv_lora_rank", usual.rank, kMaxHeadDim, l.rank));
  BLEND_RETURN_IF_ERROR(read("qk_rope_head_dim", usual.rope, kMaxHeadDim, l.rope));
  BLEND_RETURN_IF_ERROR(read("qk_nope_head_dim", usual.nope, kMaxHeadDim, l.nope));
  BLEND_RETURN_IF_ERROR(read("v_head_dim", usual.value, kMaxHeadDim, l.value));
  if (!is_null("q_lora_rank")) {
    BLEND_RETURN_IF_ERROR(read("q_lora_rank", usual.q_rank, kMaxWidth, l.q_rank));
  }
  l.eps = kLatentEps;
  BLEND_RETURN_IF_ERROR(check_latent(l, c_.n_heads, "kv_lora_rank"));
  c_.n_kv_heads = 1;
  c_.head_dim = l.row() / 2;
  c_.attn_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(l.q_dim())));
  BLEND_ASSIGN(const bool biases, root_.boolean_or("attention_bias", false));
  if (biases) {
    return {BLEND_E_UNSUPPORTED, "attention_bias: libblend runs latent rows without biases"};
  }
  BLEND_ASSIGN(const int64_t every, integer_or("moe_layer_freq", 1, 0, kMaxLayers));
  if (every == 1) return Status::ok();
  return make_error(BLEND_E_UNSUPPORTED, "moe_layer_freq is %lld; libblend runs 1",
                    static_cast<long long>(every));
}

// Scores grow with the context that YaRN stretches, besides what rotates.
Status HfConfigReader::read_latent_rope(const std::optional<JsonView>& params) {
  if (c_.rope.rotary_dim != c_.latent.rope) {
    return make_error(BLEND_E_UNSUPPORTED,
                      "%u of the %u elements of qk_rope_head_dim rotate; libblend rotates all",
                      c_.rope.rotary_dim, c_.latent.rope);
  }
  if (c_.short_context != 0) {
    return {BLEND_E_UNSUPPORTED, "LongRoPE of latent rows is not supported"};
  }
  if (family_.model_type != "deepseek_v2") {
    BLEND_ASSIGN(const bool neighbours, root_.boolean_or("rope_interleave", true));
    if (!neighbours) c_.rope.layout = RopeLayout::half_split;
  }
  if (!params) return Status::ok();
  BLEND_ASSIGN(const std::string old_name, params->string_or("type", "default"));
  BLEND_ASSIGN(const std::string type, params->string_or("rope_type", old_name.c_str()));
  const std::optional<JsonView> all = params->get("mscale_all_dim");
  if (type == "default" || !all) return Status::ok();
  BLEND_ASSIGN(const double share, all->number());
  if (share == 0) return Status::ok();  // as transformers reads it
  BLEND_ASSIGN(const JsonView given, params->need("factor"));
  BLEND_ASSIGN(const double factor, given.number());
  if (!(share > 0 && share <= 1e6 && factor > 0 && factor <= 1e6)) {
    return all->error(BLEND_E_FORMAT, "it must be above 0 and at most 1000000, as factor");
  }
  const auto grown = static_cast<float>(1 + share * (yarn_attention_factor(factor) - 1));
  c_.attn_scale *= grown * grown;
  return Status::ok();
}

}  // namespace blend
