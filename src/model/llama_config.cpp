// Hyperparameters of a GGUF `llama`: what each key means, its default and its sane range.
#include <algorithm>
#include <cmath>
#include <limits>

#include "model/llama_source.h"

namespace blend {
namespace {

// Limits far above any model, so that products of two of them stay inside 32 bits where the config
// multiplies them and inside 64 everywhere.
constexpr uint32_t kMaxLayers = 1 << 16;
constexpr uint32_t kMaxHeads = 1 << 14;
constexpr uint32_t kMaxHeadDim = 1 << 14;
constexpr uint32_t kMaxWidth = 1 << 26;
constexpr uint32_t kMaxContext = 16 << 20;

// Keys that, present, mean a computation that libblend does not do.
constexpr const char* kUnsupportedKeys[] = {
    "llama.rope.scaling.attn_factor",
    "llama.rope.scaling.yarn_log_multiplier",
    "llama.logit_scale",
    "llama.embedding_scale",
    "llama.residual_scale",
    "llama.attention.scale",
    "llama.attention.clamp_kqv",
    "llama.attention.max_alibi_bias",
    "llama.attn_logit_softcapping",
    "llama.final_logit_softcapping",
};

Result<uint32_t> in_range(const char* key, uint32_t value, uint32_t max) {
  if (value >= 1 && value <= max) return value;
  return make_error(BLEND_E_FORMAT, "key '%s' is %u; 1 to %u make sense", key, value, max);
}

Result<uint32_t> required(const GgufReader& gguf, const char* key, uint32_t max) {
  BLEND_ASSIGN(const std::optional<uint32_t> value, gguf.get_u32(key));
  if (!value) return make_error(BLEND_E_FORMAT, "key '%s' is missing", key);
  return in_range(key, *value, max);
}

Result<uint32_t> with_default(const GgufReader& gguf, const char* key, uint32_t otherwise,
                              uint32_t max) {
  BLEND_ASSIGN(const std::optional<uint32_t> value, gguf.get_u32(key));
  return in_range(key, value.value_or(otherwise), max);
}

Result<double> positive(const char* key, double value) {
  if (std::isfinite(value) && value > 0) return value;
  return make_error(BLEND_E_FORMAT, "key '%s' is %g; it must be a finite number above 0", key,
                    value);
}

Status read_attention(const GgufReader& gguf, ModelConfig& c) {
  BLEND_ASSIGN(c.n_heads, required(gguf, "llama.attention.head_count", kMaxHeads));
  BLEND_ASSIGN(c.n_kv_heads,
               with_default(gguf, "llama.attention.head_count_kv", c.n_heads, kMaxHeads));
  if (c.n_heads % c.n_kv_heads != 0) {
    return make_error(BLEND_E_FORMAT,
                      "key 'llama.attention.head_count' is %u, no multiple of the %u of "
                      "'llama.attention.head_count_kv'",
                      c.n_heads, c.n_kv_heads);
  }
  if (!gguf.has("llama.attention.key_length") && c.d_model % c.n_heads != 0) {
    return make_error(BLEND_E_FORMAT,
                      "key 'llama.embedding_length' is %u, no multiple of the %u of "
                      "'llama.attention.head_count', and 'llama.attention.key_length' is missing",
                      c.d_model, c.n_heads);
  }
  BLEND_ASSIGN(c.head_dim, with_default(gguf, "llama.attention.key_length", c.d_model / c.n_heads,
                                        kMaxHeadDim));
  BLEND_ASSIGN(const uint32_t value_dim, with_default(gguf, "llama.attention.value_length",
                                                      c.d_model / c.n_heads, kMaxHeadDim));
  if (value_dim != c.head_dim) {
    return make_error(BLEND_E_UNSUPPORTED,
                      "keys of %u elements and values of %u ('llama.attention.key_length', "
                      "'value_length'): libblend needs them equal",
                      c.head_dim, value_dim);
  }
  BLEND_ASSIGN(const std::optional<uint32_t> window,
               gguf.get_u32("llama.attention.sliding_window"));
  if (window.value_or(0) != 0 && *window < c.context_length) {
    return make_error(BLEND_E_UNSUPPORTED, "sliding-window attention (%u rows) is not supported",
                      *window);
  }
  BLEND_ASSIGN(const std::optional<bool> causal, gguf.get_bool("llama.attention.causal"));
  if (!causal.value_or(true)) {
    return make_error(BLEND_E_UNSUPPORTED, "attention without a causal mask is not supported");
  }
  return Status::ok();
}

Status read_rope(const GgufReader& gguf, ModelConfig& c) {
  RopeParams& r = c.rope;
  r.layout = RopeLayout::interleaved;
  BLEND_ASSIGN(r.rotary_dim, with_default(gguf, "llama.rope.dimension_count", c.head_dim,
                                          std::numeric_limits<uint32_t>::max()));
  if (r.rotary_dim > c.head_dim || r.rotary_dim % 2 != 0) {
    return make_error(BLEND_E_FORMAT,
                      "key 'llama.rope.dimension_count' is %u; it must be even and at most the "
                      "head's %u elements",
                      r.rotary_dim, c.head_dim);
  }
  BLEND_ASSIGN(const std::optional<double> theta, gguf.get_float("llama.rope.freq_base"));
  BLEND_ASSIGN(r.theta, positive("llama.rope.freq_base", theta.value_or(10000.0)));
  if (r.theta < 1) {
    return make_error(BLEND_E_FORMAT, "key 'llama.rope.freq_base' is %g; it must be at least 1",
                      r.theta);
  }

  BLEND_ASSIGN(const std::optional<std::string> type, gguf.get_string("llama.rope.scaling.type"));
  if (type && *type != "none" && *type != "linear") {
    return make_error(BLEND_E_UNSUPPORTED, "RoPE scaling of type '%.40s' is not supported",
                      type->c_str());
  }
  if (type && *type == "none") return Status::ok();
  // Files from before scaling had types call the factor scale_linear; 0 says there is none.
  BLEND_ASSIGN(std::optional<double> factor, gguf.get_float("llama.rope.scaling.factor"));
  if (!factor) {
    BLEND_ASSIGN(factor, gguf.get_float("llama.rope.scale_linear"));
  }
  if (factor.value_or(0) != 0) {
    BLEND_ASSIGN(r.linear_scale, positive("llama.rope.scaling.factor", *factor));
    if (r.linear_scale < kMinRopeFactor) {
      return make_error(BLEND_E_FORMAT, "key 'llama.rope.scaling.factor' is %g, which is too small",
                        r.linear_scale);
    }
  }
  return Status::ok();
}

}  // namespace

Result<ModelConfig> read_llama_config(const GgufReader& gguf) {
  BLEND_ASSIGN(const std::optional<std::string> architecture,
               gguf.get_string("general.architecture"));
  if (!architecture) return make_error(BLEND_E_FORMAT, "key 'general.architecture' is missing");
  if (*architecture != "llama") {
    return make_error(BLEND_E_UNSUPPORTED,
                      "architecture '%.40s' is not supported; libblend runs 'llama'",
                      architecture->c_str());
  }
  ModelConfig c;
  c.architecture = *architecture;
  BLEND_ASSIGN(const std::optional<std::string> name, gguf.get_string("general.name"));
  c.name = name.value_or("");
  // The name is handed on as a C string.
  c.name.resize(std::min(c.name.size(), c.name.find('\0')));

  for (const char* key : kUnsupportedKeys) {
    if (gguf.has(key)) {
      return make_error(BLEND_E_UNSUPPORTED, "the model asks for '%s', which is not supported",
                        key);
    }
  }
  BLEND_ASSIGN(const std::optional<uint32_t> experts, gguf.get_u32("llama.expert_count"));
  if (experts.value_or(0) != 0) {
    return make_error(BLEND_E_UNSUPPORTED,
                      "a mixture of experts ('llama.expert_count' is %u) is not "
                      "supported",
                      *experts);
  }
  BLEND_ASSIGN(c.n_layers, required(gguf, "llama.block_count", kMaxLayers));
  BLEND_ASSIGN(c.d_model, required(gguf, "llama.embedding_length", kMaxWidth));
  BLEND_ASSIGN(c.d_ff, required(gguf, "llama.feed_forward_length", kMaxWidth));
  BLEND_ASSIGN(c.context_length, required(gguf, "llama.context_length", kMaxContext));
  BLEND_ASSIGN(const std::optional<double> eps,
               gguf.get_float("llama.attention.layer_norm_rms_epsilon"));
  if (!eps) {
    return make_error(BLEND_E_FORMAT, "key 'llama.attention.layer_norm_rms_epsilon' is missing");
  }
  BLEND_ASSIGN(const double positive_eps, positive("llama.attention.layer_norm_rms_epsilon", *eps));
  c.rms_eps = static_cast<float>(positive_eps);
  if (c.rms_eps <= 0 || c.rms_eps >= 1) {
    return make_error(
        BLEND_E_FORMAT,
        "key 'llama.attention.layer_norm_rms_epsilon' is %g; it must be between 0 and 1",
        positive_eps);
  }
  BLEND_RETURN_IF_ERROR(read_attention(gguf, c));
  BLEND_RETURN_IF_ERROR(read_rope(gguf, c));
  return c;
}

}  // namespace blend
