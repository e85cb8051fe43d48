// RoPE as config.json describes it.
#include <algorithm>

#include "model/hf_config.h"
#include "model/rope_scaling.h"

namespace blend {
namespace {

// Bound of frequencies and contexts: beyond it positions are lost.
constexpr double kMaxFactor = 1e6;
constexpr double kMaxTheta = 1e15;

Result<double> in_range(const JsonView& value, double min, double max) {
  BLEND_ASSIGN(const double number, value.number());
  if (number >= min && number <= max) return number;
  return make_error(BLEND_E_FORMAT, "%s is %g; %g to %g make sense", value.path().c_str(), number,
                    min, max);
}

Result<double> needed(const JsonView& params, const char* name, double min, double max) {
  BLEND_ASSIGN(const JsonView value, params.need(name));
  return in_range(value, min, max);
}

Result<double> optional(const JsonView& params, const char* name, double otherwise, double min,
                        double max) {
  const std::optional<JsonView> value = params.get(name);
  return value ? in_range(*value, min, max) : Result<double>(otherwise);
}

// The context before stretching: here, beside the parameters in old files, or the model's.
Result<double> original_context(const JsonView& root, const JsonView& params, double otherwise) {
  constexpr const char* kName = "original_max_position_embeddings";
  constexpr double kMax = 1 << 30;
  BLEND_ASSIGN(const double beside, optional(root, kName, otherwise, 1, kMax));
  return optional(params, kName, beside, 1, kMax);
}

Status read_llama3(const JsonView& root, const JsonView& params, uint32_t context,
                   RopeParams& rope) {
  Llama3Scaling s;
  BLEND_ASSIGN(s.factor, needed(params, "factor", 1, kMaxFactor));
  BLEND_ASSIGN(s.low_freq_factor, needed(params, "low_freq_factor", 1e-6, kMaxFactor));
  BLEND_ASSIGN(s.high_freq_factor, needed(params, "high_freq_factor", 1e-6, kMaxFactor));
  BLEND_ASSIGN(s.original_context, original_context(root, params, context));
  if (s.high_freq_factor <= s.low_freq_factor) {
    return params.error(BLEND_E_FORMAT, "high_freq_factor must be above low_freq_factor");
  }
  rope.freq_factors = llama3_factors(rope.rotary_dim, rope.theta, s);
  return Status::ok();
}

Status read_yarn(const JsonView& root, const JsonView& params, uint32_t context, RopeParams& rope) {
  YarnScaling s;
  BLEND_ASSIGN(s.original_context, original_context(root, params, context));
  BLEND_ASSIGN(s.factor, optional(params, "factor", std::max(1.0, context / s.original_context), 1,
                                  kMaxFactor));
  BLEND_ASSIGN(s.beta_fast, optional(params, "beta_fast", 32, 1e-6, kMaxFactor));
  BLEND_ASSIGN(s.beta_slow, optional(params, "beta_slow", 1, 1e-6, kMaxFactor));
  BLEND_ASSIGN(s.whole_dimensions, params.boolean_or("truncate", true));
  if (s.beta_fast < s.beta_slow || rope.theta <= 1) {
    return params.error(BLEND_E_FORMAT, "beta_fast must be above beta_slow, and the base above 1");
  }
  rope.freq_factors = yarn_factors(rope.rotary_dim, rope.theta, s);
  // transformers treats 0 as absent.
  BLEND_ASSIGN(const double mscale, optional(params, "mscale", 0, 0, kMaxFactor));
  BLEND_ASSIGN(const double all, optional(params, "mscale_all_dim", 0, 0, kMaxFactor));
  double attention = yarn_attention_factor(s.factor);
  if (mscale != 0 && all != 0) {
    const double grown = attention - 1;
    attention = (1 + mscale * grown) / (1 + all * grown);
  }
  BLEND_ASSIGN(rope.attention_factor, optional(params, "attention_factor", attention, 1e-6, 1e6));
  return Status::ok();
}

// One factor a frequency.
Result<std::vector<float>> read_factors(const JsonView& params, const char* name, size_t n) {
  BLEND_ASSIGN(const JsonView list, params.need(name));
  BLEND_ASSIGN(const Json::Array* const entries, list.array());
  if (entries->size() != n) {
    return make_error(BLEND_E_FORMAT, "%s has %zu numbers for %zu frequencies", list.path().c_str(),
                      entries->size(), n);
  }
  std::vector<float> factors(n);
  for (size_t i = 0; i < n; ++i) {
    BLEND_ASSIGN(const double factor, in_range(list.element(i), 1e-6, kMaxFactor));
    factors[i] = static_cast<float>(factor);
  }
  return factors;
}

Status read_longrope(const JsonView& root, const JsonView& params, uint32_t context, HfRope& out) {
  const size_t n = out.rope.rotary_dim / 2;
  out.long_rope = out.rope;
  BLEND_ASSIGN(out.rope.freq_factors, read_factors(params, "short_factor", n));
  BLEND_ASSIGN(out.long_rope.freq_factors, read_factors(params, "long_factor", n));
  BLEND_ASSIGN(const double original, original_context(root, params, context));
  if (original < 2) {
    return params.error(BLEND_E_FORMAT, "original_max_position_embeddings must be above 1");
  }
  BLEND_ASSIGN(const double factor,
               optional(params, "factor", context / original, 1e-6, kMaxFactor));
  BLEND_ASSIGN(const double attention,
               optional(params, "attention_factor", longrope_attention_factor(factor, original),
                        1e-6, kMaxFactor));
  out.rope.attention_factor = out.long_rope.attention_factor = attention;
  out.short_context = static_cast<uint32_t>(original);
  return Status::ok();
}

}  // namespace

Result<HfRope> read_hf_rope(const JsonView& root, const std::optional<JsonView>& params,
                            double theta, double share, uint32_t head_dim,
                            uint32_t context_length) {
  HfRope out;
  RopeParams& rope = out.rope;
  rope.layout = RopeLayout::half_split;
  BLEND_ASSIGN(rope.theta, optional(params ? *params : root, "rope_theta", theta, 1, kMaxTheta));
  BLEND_ASSIGN(const double beside, optional(root, "partial_rotary_factor", share, 0, 1));
  BLEND_ASSIGN(const double given,
               optional(params ? *params : root, "partial_rotary_factor", beside, 0, 1));
  rope.rotary_dim = static_cast<uint32_t>(head_dim * given);
  if (rope.rotary_dim == 0 || rope.rotary_dim % 2 != 0) {
    return make_error(BLEND_E_FORMAT,
                      "%u of the %u elements of a head rotate; it must be an even number above 0",
                      rope.rotary_dim, head_dim);
  }
  if (!params) return out;

  BLEND_ASSIGN(const std::string old_name, params->string_or("type", "default"));
  BLEND_ASSIGN(const std::string type, params->string_or("rope_type", old_name.c_str()));
  if (type == "default") return out;
  if (type == "linear") {
    BLEND_ASSIGN(rope.linear_scale, needed(*params, "factor", 1e-6, kMaxFactor));
    return out;
  }
  if (type == "llama3") {
    BLEND_RETURN_IF_ERROR(read_llama3(root, *params, context_length, rope));
    return out;
  }
  if (type == "yarn") {
    BLEND_RETURN_IF_ERROR(read_yarn(root, *params, context_length, rope));
    return out;
  }
  if (type == "longrope") {
    BLEND_RETURN_IF_ERROR(read_longrope(root, *params, context_length, out));
    return out;
  }
  return make_error(BLEND_E_UNSUPPORTED,
                    "%s: RoPE of type '%.40s' is not supported; libblend knows default, linear, "
                    "llama3, yarn and longrope",
                    params->path().c_str(), type.c_str());
}

}  // namespace blend
