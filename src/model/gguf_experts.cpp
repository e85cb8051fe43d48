#include "model/gguf_experts.h"

#include <cmath>
#include <string>

#include "model/limits.h"
#include "model/tensor_table.h"

namespace blend {
namespace {

// `expert_gating_func`: how scores come from the router's logits.
constexpr uint32_t kSoftmax = 1;
constexpr uint32_t kSigmoid = 2;
constexpr uint32_t kSoftmaxOfChosen = 3;

// Reads one file's keys; those of the architecture are named without it. Used by one call.
class GgufExpertsReader {
 public:
  GgufExpertsReader(const GgufReader& gguf, const GgufExperts& family, const ModelConfig& config)
      : gguf_(gguf), family_(family), config_(config) {}

  Result<Experts> read();

 private:
  std::string key(const char* name) const { return config_.architecture + "." + name; }
  Result<uint32_t> number(const char* name, uint32_t otherwise, uint32_t min, uint32_t max) const;
  Status read_weights();
  Status read_groups();
  Status read_layers();

  const GgufReader& gguf_;
  const GgufExperts& family_;
  const ModelConfig& config_;
  Experts out_;
};

Result<uint32_t> GgufExpertsReader::number(const char* name, uint32_t otherwise, uint32_t min,
                                           uint32_t max) const {
  BLEND_ASSIGN(const std::optional<uint32_t> value, gguf_.get_u32(key(name)));
  const uint32_t n = value.value_or(otherwise);
  if (n >= min && n <= max) return n;
  return make_error(BLEND_E_FORMAT, "key '%s' is %u; %u to %u make sense", key(name).c_str(), n,
                    min, max);
}

Result<Experts> GgufExpertsReader::read() {
  BLEND_ASSIGN(out_.count, number("expert_count", 0, family_.required ? 1 : 0, kMaxExperts));
  if (out_.count == 0) return Experts();
  BLEND_ASSIGN(const std::optional<uint32_t> used, gguf_.get_u32(key("expert_used_count")));
  if (!used || *used == 0 || *used > out_.count) {
    return make_error(BLEND_E_FORMAT, "key '%s' is %s; 1 to the %u of '%s' make sense",
                      key("expert_used_count").c_str(),
                      used ? std::to_string(*used).c_str() : "missing", out_.count,
                      key("expert_count").c_str());
  }
  out_.used = *used;
  BLEND_ASSIGN(out_.d_ff, number("expert_feed_forward_length", config_.d_ff, 1, kMaxWidth));
  BLEND_ASSIGN(const uint32_t shared, number("expert_shared_count", 0, 0, kMaxExperts));
  const uint64_t together = uint64_t{shared} * out_.d_ff;
  const uint32_t usual = family_.shared_weighed
                             ? config_.d_ff
                             : static_cast<uint32_t>(std::min<uint64_t>(together, kMaxWidth));
  if (!family_.beside_dense) {
    BLEND_ASSIGN(out_.shared_d_ff,
                 number("expert_shared_feed_forward_length", usual, 0, kMaxWidth));
  }
  if (!config_.blocks.empty()) {
    BLEND_ASSIGN(out_.latent, number("moe_latent_size", 0, 0, kMaxWidth));
  }
  BLEND_RETURN_IF_ERROR(read_weights());
  BLEND_RETURN_IF_ERROR(read_groups());
  BLEND_RETURN_IF_ERROR(read_layers());
  return std::move(out_);
}

Status GgufExpertsReader::read_weights() {
  BLEND_ASSIGN(const uint32_t given, number("expert_gating_func", 0, 0, 255));
  const uint32_t gating = given != 0 ? given : family_.sigmoid ? kSigmoid : kSoftmax;
  // The softmax of the chosen logits is that of all of them, divided by the sum of the chosen.
  if (gating != kSoftmax && gating != kSigmoid && gating != kSoftmaxOfChosen) {
    return make_error(BLEND_E_UNSUPPORTED,
                      "key '%s' is %u; libblend knows 1 and 3, which are softmax, and 2, sigmoid",
                      key("expert_gating_func").c_str(), gating);
  }
  out_.sigmoid = gating == kSigmoid;
  BLEND_ASSIGN(const std::optional<bool> norm, gguf_.get_bool(key("expert_weights_norm")));
  out_.normalised = gating == kSoftmaxOfChosen || norm.value_or(family_.normalised);
  BLEND_ASSIGN(const std::optional<double> scale, gguf_.get_float(key("expert_weights_scale")));
  if (scale.value_or(0) == 0) return Status::ok();  // so converters say that there is none
  out_.scale = static_cast<float>(*scale);
  if (out_.scale > 0 && std::isfinite(out_.scale)) return Status::ok();
  return make_error(BLEND_E_FORMAT, "key '%s' is %g; it must be a finite number above 0",
                    key("expert_weights_scale").c_str(), *scale);
}

// 0 groups mean none, as 1 does; the file may then say that 0 of them are used.
Status GgufExpertsReader::read_groups() {
  BLEND_ASSIGN(const uint32_t groups, number("expert_group_count", 1, 0, kMaxExpertGroups));
  BLEND_ASSIGN(const uint32_t used, number("expert_group_used_count", groups, 0, kMaxExpertGroups));
  out_.groups = std::max(groups, 1u);
  out_.used_groups = groups <= 1 ? std::max(used, 1u) : used;
  if (experts_fit_groups(out_)) return Status::ok();
  return make_error(BLEND_E_FORMAT,
                    "keys '%s' and '%s' are %u and %u, which make no sense for %u experts, %u of "
                    "them used",
                    key("expert_group_count").c_str(), key("expert_group_used_count").c_str(),
                    out_.groups, out_.used_groups, out_.count, out_.used);
}

// Which layers are dense, and which biases there are.
Status GgufExpertsReader::read_layers() {
  BLEND_ASSIGN(const uint32_t first,
               number("leading_dense_block_count", 0, 0, config_.n_layers - 1));
  BLEND_ASSIGN(const uint32_t step, number("interleave_moe_layer_step", 1, 1, config_.n_layers));
  out_.dense.resize(config_.n_layers);
  bool any = false;
  uint32_t sparse = config_.n_layers;  // the first layer with experts
  for (uint32_t i = config_.n_layers; i-- > 0;) {
    out_.dense[i] = config_.blocks.empty()
                        ? i < first || (i + 1) % step != 0
                        : !config_.experts.dense.empty() && config_.experts.dense[i];
    any = any || out_.dense[i];
    if (!out_.dense[i]) sparse = i;
  }
  if (sparse == config_.n_layers) {
    return make_error(BLEND_E_FORMAT, "keys '%s' and '%s' leave no layer with experts",
                      key("leading_dense_block_count").c_str(),
                      key("interleave_moe_layer_step").c_str());
  }
  if (!any) out_.dense.clear();
  const auto has = [&](const char* name) {
    const uint32_t at = file_layer(TensorRole::router, config_, sparse);
    return gguf_.tensor("blk." + std::to_string(at) + "." + name) != nullptr;
  };
  out_.shared_weighed = family_.shared_weighed && out_.shared_d_ff != 0;
  out_.beside_dense = family_.beside_dense;
  out_.choice_bias = has("exp_probs_b.bias");
  if (family_.deepseek2) {
    if (out_.choice_bias && !gguf_.has(key("expert_gating_func"))) out_.sigmoid = true;
    out_.groups_by_best = out_.groups > 1 && !out_.sigmoid;
  }
  out_.router_bias = has("ffn_gate_inp.bias");
  out_.biases = config_.ffn_matrices() == 3 && has("ffn_gate_exps.bias");
  return Status::ok();
}

}  // namespace

Result<Experts> read_gguf_experts(const GgufReader& gguf, const GgufExperts& family,
                                  const ModelConfig& config) {
  return GgufExpertsReader(gguf, family, config).read();
}

}  // namespace blend
