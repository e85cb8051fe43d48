// Keys of a GGUF about RoPE.
#include <cmath>
#include <limits>

#include "model/gguf_config_reader.h"
#include "model/limits.h"
#include "model/rope_scaling.h"

namespace blend {

Status GgufConfigReader::read_rope() {
  RopeParams& r = c_.rope;
  r.layout = family_.layout;
  BLEND_ASSIGN(r.rotary_dim, with_default("rope.dimension_count", c_.head_dim,
                                          std::numeric_limits<uint32_t>::max()));
  if (r.rotary_dim > c_.head_dim || r.rotary_dim % 2 != 0) {
    return make_error(BLEND_E_FORMAT,
                      "key '%s' is %u; it must be even and at most the head's %u elements",
                      key("rope.dimension_count").c_str(), r.rotary_dim, c_.head_dim);
  }
  BLEND_ASSIGN(r.theta, base("rope.freq_base", 10000.0));
  if (has_tensor(kRopeFreqs)) {
    BLEND_ASSIGN(r.freq_factors, read_factors(kRopeFreqs));
  }
  if (family_.gemma4) BLEND_RETURN_IF_ERROR(read_local_rope());
  const bool gemma3 = family_.gemma && !family_.gemma4 && family_.qk_norm == QkNorm::heads;
  if (gemma3 || (family_.plain_local && gguf_.has(key("attention.sliding_window")))) {
    c_.local_rope = r;  // before any scaling, which is the global layers' alone
    BLEND_ASSIGN(c_.local_rope.theta, base("rope.freq_base_swa", gemma3 ? 10000.0 : r.theta));
  }
  BLEND_ASSIGN(const std::optional<std::string> type, gguf_.get_string(key("rope.scaling.type")));
  BLEND_ASSIGN(r.attention_factor, positive_or("rope.scaling.attn_factor", 1.0));
  BLEND_RETURN_IF_ERROR(read_scaling(type.value_or("linear")));
  if (has_tensor(kRopeShort) || has_tensor(kRopeLong) || type.value_or("") == "longrope") {
    return read_longrope();
  }
  return family_.mistral3 ? read_growth() : Status::ok();
}

// Q grows with every further length of the context that the model was trained for before YaRN.
Status GgufConfigReader::read_growth() {
  RopeParams& r = c_.rope;
  BLEND_ASSIGN(const std::optional<double> scale, gguf_.get_float(key(kTemperatureScale)));
  if (scale.value_or(0) == 0) return Status::ok();
  BLEND_ASSIGN(r.q_growth, positive(key(kTemperatureScale), *scale));
  BLEND_ASSIGN(r.q_growth_rows, with_default("rope.scaling.original_context_length",
                                             c_.context_length, kMaxContext));
  if (r.rotary_dim == c_.head_dim) return Status::ok();
  return make_error(BLEND_E_UNSUPPORTED, "'%s' where %u of the %u elements of a head rotate",
                    key(kTemperatureScale).c_str(), r.rotary_dim, c_.head_dim);
}

Status GgufConfigReader::read_scaling(const std::string& type) {
  if (type == "none") return Status::ok();
  if (type == "yarn") return read_yarn();
  if (type != "linear" && type != "longrope") {
    return make_error(BLEND_E_UNSUPPORTED,
                      "key '%s' is '%.40s', which is not supported; libblend knows none, linear, "
                      "yarn and longrope",
                      key("rope.scaling.type").c_str(), type.c_str());
  }
  // Files from before scaling had types call the factor scale_linear; 0 says there is none.
  std::string name = key("rope.scaling.factor");
  BLEND_ASSIGN(std::optional<double> factor, gguf_.get_float(name));
  if (!factor) {
    name = key("rope.scale_linear");
    BLEND_ASSIGN(factor, gguf_.get_float(name));
  }
  if (factor.value_or(0) != 0) {
    BLEND_ASSIGN(c_.rope.linear_scale, positive(name, *factor));
    if (c_.rope.linear_scale < kMinRopeFactor) {
      return make_error(BLEND_E_FORMAT, "key '%s' is %g, which is too small", name.c_str(),
                        c_.rope.linear_scale);
    }
  }
  return Status::ok();
}

Status GgufConfigReader::read_yarn() {
  YarnScaling s;
  BLEND_ASSIGN(s.factor, positive_or("rope.scaling.factor", 1.0));
  BLEND_ASSIGN(s.original_context,
               positive_or("rope.scaling.original_context_length", c_.context_length));
  BLEND_ASSIGN(s.beta_fast, positive_or("rope.scaling.yarn_beta_fast", 32.0));
  BLEND_ASSIGN(s.beta_slow, positive_or("rope.scaling.yarn_beta_slow", 1.0));
  s.whole_dimensions = !family_.gpt_oss;
  BLEND_ASSIGN(const double share, positive_or("rope.scaling.yarn_ext_factor", 1.0));
  double usual = yarn_attention_factor(s.factor);
  BLEND_ASSIGN(const std::optional<double> second, gguf_.get_float(key(kYarnLogMultiplier)));
  if (second.value_or(0) != 0) {
    BLEND_ASSIGN(const double all, positive(key(kYarnLogMultiplier), *second));
    if (family_.latent) {
      // These files have a tenth of what others have. Q and K grow as a whole, so scores by the
      // square; what rotates gets no further factor.
      const double grown = 1 + 10 * all * (usual - 1);
      c_.attn_scale *= static_cast<float>(grown * grown);
      if (!std::isfinite(c_.attn_scale)) {
        return make_error(BLEND_E_FORMAT, "key '%s' is %g, by which scores are no numbers",
                          key(kYarnLogMultiplier).c_str(), all);
      }
      usual = 1;
    } else {
      usual /= 1 + all * (usual - 1);
    }
  }
  // Replaces the value that follows from the factor, as transformers reads it in the original.
  BLEND_ASSIGN(const double attention, positive_or("rope.scaling.yarn_attn_factor", usual));
  RopeParams& r = c_.rope;
  if (s.factor < 1 || s.factor > 1e6 || r.theta <= 1 || s.beta_slow > s.beta_fast || share != 1) {
    return make_error(BLEND_E_UNSUPPORTED,
                      "YaRN with factor %g, beta_fast %g, beta_slow %g, ext_factor %g and a base "
                      "of %g ('%s' and its neighbours) is not supported",
                      s.factor, s.beta_fast, s.beta_slow, share, r.theta,
                      key("rope.scaling.factor").c_str());
  }
  const std::vector<float> factors = yarn_factors(r.rotary_dim, r.theta, s);
  if (r.freq_factors.empty()) {
    r.freq_factors = factors;
  } else {
    for (size_t i = 0; i < factors.size(); ++i) r.freq_factors[i] *= factors[i];
  }
  r.attention_factor *= attention;
  return Status::ok();
}

// A tensor of factors that frequencies are divided by.
Result<std::vector<float>> GgufConfigReader::read_factors(const char* name) const {
  const GgufTensor* t = gguf_.tensor(name);
  if (t == nullptr) {
    return make_error(BLEND_E_FORMAT, "tensor '%s' is missing, which LongRoPE needs", name);
  }
  BLEND_ASSIGN(std::vector<float> factors,
               read_f32_vector(gguf_, *t, c_.rope.rotary_dim / 2, key("rope.dimension_count")));
  for (const float f : factors) {
    if (!std::isfinite(f) || f < kMinRopeFactor) {
      return make_error(BLEND_E_FORMAT, "tensor '%s' holds %g; factors are finite and above 0",
                        name, static_cast<double>(f));
    }
  }
  return factors;
}

// LongRoPE (Phi-3): see ModelConfig.
Status GgufConfigReader::read_longrope() {
  if (!c_.rope.freq_factors.empty()) {
    return make_error(BLEND_E_UNSUPPORTED,
                      "tensor '%s' beside other factors of RoPE ('%s' or YaRN) is not supported",
                      has_tensor(kRopeLong) ? kRopeLong : kRopeShort, kRopeFreqs);
  }
  BLEND_ASSIGN(c_.short_context, with_default("rope.scaling.original_context_length",
                                              c_.context_length, kMaxContext));
  c_.long_rope = c_.rope;
  BLEND_ASSIGN(c_.rope.freq_factors, read_factors(kRopeShort));
  BLEND_ASSIGN(c_.long_rope.freq_factors, read_factors(kRopeLong));
  return Status::ok();
}

// RoPE of a Gemma 4's windowed layers, whose heads have a size of their own. The factors in the
// file are those of the others.
Status GgufConfigReader::read_local_rope() {
  BLEND_ASSIGN(const uint32_t dim, required("attention.key_length_swa", kMaxHeadDim));
  BLEND_ASSIGN(const uint32_t value_dim,
               with_default("attention.value_length_swa", dim, kMaxHeadDim));
  if (value_dim != dim) {
    return make_error(BLEND_E_UNSUPPORTED,
                      "keys of %u elements and values of %u ('%s'): libblend "
                      "needs them equal",
                      dim, value_dim, key("attention.key_length_swa").c_str());
  }
  RopeParams& r = c_.local_rope;
  r.layout = family_.layout;
  BLEND_ASSIGN(r.rotary_dim, with_default("rope.dimension_count_swa", dim, kMaxHeadDim));
  if (r.rotary_dim > dim || r.rotary_dim % 2 != 0) {
    return make_error(BLEND_E_FORMAT,
                      "key '%s' is %u; it must be even and at most the head's %u elements",
                      key("rope.dimension_count_swa").c_str(), r.rotary_dim, dim);
  }
  BLEND_ASSIGN(r.theta, base("rope.freq_base_swa", 10000.0));
  return Status::ok();
}

Result<double> GgufConfigReader::base(const char* name, double otherwise) const {
  BLEND_ASSIGN(const double theta, positive_or(name, otherwise));
  if (theta >= 1) return theta;
  return make_error(BLEND_E_FORMAT, "key '%s' is %g; it must be at least 1", key(name).c_str(),
                    theta);
}

}  // namespace blend
