#include "model/hf_experts.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "model/fused_tensors.h"
#include "model/limits.h"

namespace blend {
namespace {

// The first of each: as transformers saves such a model. Then as it holds them itself since version
// 5, and saves them if it is asked to.
constexpr HfExpertNames kNames[] = {
    {"mlp.gate.weight", "mlp.experts.gate_up_proj", "mlp.experts.down_proj", "mlp.experts.",
     ".gate_proj.weight", ".up_proj.weight", ".down_proj.weight"},
    {"block_sparse_moe.gate.weight", nullptr, nullptr, "block_sparse_moe.experts.", ".w1.weight",
     ".w3.weight", ".w2.weight"},
    {"block_sparse_moe.router.layer.weight", "block_sparse_moe.input_linear.weight",
     "block_sparse_moe.output_linear.weight", nullptr, nullptr, nullptr, nullptr},
    {"block_sparse_moe.router.weight", "block_sparse_moe.experts.gate_up_proj",
     "block_sparse_moe.experts.down_proj", nullptr, nullptr, nullptr, nullptr},
    {"feed_forward.gate.weight", "feed_forward.experts.gate_up_proj",
     "feed_forward.experts.down_proj", "feed_forward.experts.", ".w1.weight", ".w3.weight",
     ".w2.weight"},
    {"mlp.router.weight", "mlp.experts.gate_up_proj", "mlp.experts.down_proj", nullptr, nullptr,
     nullptr, nullptr, true},
};

std::string of_layer(uint32_t layer, const std::string& name) {
  return "model.layers." + std::to_string(layer) + "." + name;
}

// Reads one file's members. Used by one call.
class HfExpertsReader {
 public:
  HfExpertsReader(const JsonView& root, HfExperts kind, const ModelConfig& config)
      : root_(root), kind_(kind), config_(config) {}

  Result<Experts> read();

 private:
  // The first of the names that is there.
  Result<uint32_t> number(std::initializer_list<const char*> names, uint32_t otherwise,
                          uint32_t min, uint32_t max) const;
  Status refuse_others() const;
  Status read_counts();
  Status read_deepseek();
  Status read_scale();
  Status read_shared();
  Status read_layers();
  Status read_listed(uint32_t& step);

  const JsonView& root_;
  const HfExperts kind_;
  const ModelConfig& config_;
  Experts out_;
};

Result<uint32_t> HfExpertsReader::number(std::initializer_list<const char*> names,
                                         uint32_t otherwise, uint32_t min, uint32_t max) const {
  for (const char* const name : names) {
    const std::optional<JsonView> value = root_.get(name);
    if (!value) continue;
    BLEND_ASSIGN(const int64_t n, value->integer(min, max));
    return static_cast<uint32_t>(n);
  }
  return otherwise;
}

Result<Experts> HfExpertsReader::read() {
  BLEND_RETURN_IF_ERROR(refuse_others());
  if (kind_ == HfExperts::deepseek) {
    BLEND_RETURN_IF_ERROR(read_deepseek());
  } else {
    BLEND_RETURN_IF_ERROR(read_counts());
    BLEND_RETURN_IF_ERROR(read_shared());
  }
  BLEND_RETURN_IF_ERROR(read_layers());
  out_.sigmoid = kind_ == HfExperts::deepseek || kind_ == HfExperts::lfm2;
  out_.choice_bias = kind_ == HfExperts::ernie || kind_ == HfExperts::deepseek;
  if (kind_ == HfExperts::lfm2) {
    BLEND_ASSIGN(out_.choice_bias, root_.boolean_or("use_expert_bias", true));
  }
  out_.router_bias = out_.biases = kind_ == HfExperts::gpt_oss;
  out_.normalised = kind_ == HfExperts::mixtral || kind_ == HfExperts::granite ||
                    kind_ == HfExperts::ernie || kind_ == HfExperts::gpt_oss;
  if (!out_.normalised) {
    const bool usual = kind_ == HfExperts::lfm2;
    BLEND_ASSIGN(out_.normalised, root_.boolean_or("norm_topk_prob", usual));
  }
  return std::move(out_);
}

Status HfExpertsReader::refuse_others() const {
  if (kind_ == HfExperts::olmoe) {
    if (const std::optional<JsonView> clip = root_.get("clip_qkv")) {
      return clip->error(BLEND_E_UNSUPPORTED, "clipping Q, K and V is not supported");
    }
  }
  if (kind_ == HfExperts::gpt_oss) {
    for (const auto& [name, wanted] : {std::pair<const char*, double>{"swiglu_limit", 7},
                                       std::pair<const char*, double>{"swiglu_alpha", 1.702}}) {
      const std::optional<JsonView> value = root_.get(name);
      if (!value) continue;
      BLEND_ASSIGN(const double number, value->number());
      if (number != wanted) return value->error(BLEND_E_UNSUPPORTED, "libblend runs 7 and 1.702");
    }
  }
  if (config_.ffn_bias) {
    return make_error(BLEND_E_UNSUPPORTED,
                      "biases of the feed-forward beside experts are not supported");
  }
  return Status::ok();
}

Status HfExpertsReader::read_counts() {
  const bool qwen = kind_ == HfExperts::qwen, ernie = kind_ == HfExperts::ernie;
  const bool lfm2 = kind_ == HfExperts::lfm2;
  const bool gpt_oss = kind_ == HfExperts::gpt_oss;
  const uint32_t usual = qwen || gpt_oss                      ? 128
                         : ernie || kind_ == HfExperts::olmoe ? 64
                         : lfm2                               ? 32
                                                              : 8;
  BLEND_ASSIGN(out_.count, number({"num_experts", "num_local_experts", "moe_num_experts"}, usual, 1,
                                  kMaxExperts));
  const uint32_t usually_used = ernie                               ? 6
                                : gpt_oss || lfm2                   ? 4
                                : qwen || kind_ == HfExperts::olmoe ? 8
                                                                    : 2;
  BLEND_ASSIGN(out_.used, number({"num_experts_per_tok", "moe_k"}, usually_used, 1, kMaxExperts));
  if (out_.used > out_.count) {
    return make_error(BLEND_E_FORMAT, "%s is %u of %u experts",
                      root_.get("moe_k") ? "moe_k" : "num_experts_per_tok", out_.used, out_.count);
  }
  const uint32_t usual_width = qwen ? 768 : ernie ? 1536 : lfm2 ? 1792 : config_.d_ff;
  out_.d_ff = config_.d_ff;
  if (!qwen && !ernie && !lfm2) return Status::ok();
  BLEND_ASSIGN(out_.d_ff, number({"moe_intermediate_size"}, usual_width, 1, kMaxWidth));
  return lfm2 ? read_scale() : Status::ok();
}

// Families differ in what they take for granted, so their files must say it.
Status HfExpertsReader::read_deepseek() {
  const auto needed = [&](const char* name, uint32_t max) -> Result<uint32_t> {
    BLEND_ASSIGN(const JsonView value, root_.need(name));
    BLEND_ASSIGN(const int64_t n, value.integer(1, max));
    return static_cast<uint32_t>(n);
  };
  BLEND_ASSIGN(out_.count, needed("n_routed_experts", kMaxExperts));
  BLEND_ASSIGN(out_.used, needed("num_experts_per_tok", out_.count));
  BLEND_ASSIGN(out_.d_ff, needed("moe_intermediate_size", kMaxWidth));
  BLEND_ASSIGN(const uint32_t shared, number({"n_shared_experts"}, 0, 0, kMaxWidth / out_.d_ff));
  out_.shared_d_ff = shared * out_.d_ff;
  BLEND_ASSIGN(out_.groups, number({"n_group"}, 1, 1, kMaxExpertGroups));
  BLEND_ASSIGN(out_.used_groups, number({"topk_group"}, out_.groups, 1, kMaxExpertGroups));
  if (!experts_fit_groups(out_)) {
    return make_error(BLEND_E_FORMAT,
                      "n_group and topk_group are %u and %u, which make no sense for %u experts, "
                      "%u of them used",
                      out_.groups, out_.used_groups, out_.count, out_.used);
  }
  return read_scale();
}

Status HfExpertsReader::read_scale() {
  const std::optional<JsonView> scale = root_.get("routed_scaling_factor");
  if (!scale) return Status::ok();
  BLEND_ASSIGN(const double factor, scale->number());
  out_.scale = static_cast<float>(factor);
  if (out_.scale > 0 && std::isfinite(out_.scale)) return Status::ok();
  return scale->error(BLEND_E_FORMAT, "it must be a finite number above 0");
}

Status HfExpertsReader::read_shared() {
  if (kind_ == HfExperts::granite) {
    BLEND_ASSIGN(out_.shared_d_ff, number({"shared_intermediate_size"}, 0, 0, kMaxWidth));
  }
  if (kind_ != HfExperts::ernie) return Status::ok();
  BLEND_ASSIGN(const uint32_t n, number({"moe_num_shared_experts"}, 2, 0, kMaxWidth / out_.d_ff));
  out_.shared_d_ff = n * out_.d_ff;
  return Status::ok();
}

Status HfExpertsReader::read_layers() {
  uint32_t first = 0, last = config_.n_layers - 1, step = 1;
  out_.dense.assign(config_.n_layers, false);
  if (kind_ == HfExperts::qwen) BLEND_RETURN_IF_ERROR(read_listed(step));
  if (kind_ == HfExperts::deepseek) {
    BLEND_ASSIGN(first, number({"first_k_dense_replace"}, 0, 0, kMaxLayers));
  }
  if (kind_ == HfExperts::lfm2) {
    BLEND_ASSIGN(first, number({"num_dense_layers"}, 2, 0, kMaxLayers));
  }
  if (kind_ == HfExperts::ernie) {
    BLEND_ASSIGN(first, number({"moe_layer_start_index"}, 1, 0, kMaxLayers));
    BLEND_ASSIGN(step, number({"moe_layer_interval"}, 1, 1, kMaxLayers));
    const std::optional<JsonView> end = root_.get("moe_layer_end_index");
    BLEND_ASSIGN(const int64_t given, end ? end->integer(-1, kMaxLayers) : Result<int64_t>(-1));
    if (given >= 0) last = static_cast<uint32_t>(given);
  }
  for (uint32_t i = 0; i < config_.n_layers; ++i) {
    if (i < first || i > last || (i + 1) % step != 0) out_.dense[i] = true;
  }
  const auto n_dense = std::count(out_.dense.begin(), out_.dense.end(), true);
  if (n_dense == config_.n_layers) {
    return make_error(BLEND_E_FORMAT, "no layer has experts, of which there are %u each",
                      out_.count);
  }
  if (n_dense == 0) out_.dense.clear();
  return Status::ok();
}

Status HfExpertsReader::read_listed(uint32_t& step) {
  BLEND_ASSIGN(step, number({"decoder_sparse_step"}, 1, 1, kMaxLayers));
  const std::optional<JsonView> list = root_.get("mlp_only_layers");
  if (!list) return Status::ok();
  BLEND_ASSIGN(const Json::Array* const entries, list->array());
  for (size_t i = 0; i < entries->size(); ++i) {
    BLEND_ASSIGN(const int64_t layer, list->element(i).integer(0, config_.n_layers - 1));
    out_.dense[static_cast<size_t>(layer)] = true;
  }
  return Status::ok();
}

}  // namespace

Result<Experts> read_hf_experts(const JsonView& root, HfExperts kind, const ModelConfig& config) {
  if (kind == HfExperts::none) return Experts();
  return HfExpertsReader(root, kind, config).read();
}

const HfExpertNames& hf_expert_names(const HfTensors& weights, uint32_t layer) {
  for (const HfExpertNames& names : kNames) {
    if (weights.has(of_layer(layer, names.router))) return names;
  }
  return kNames[0];
}

Result<TensorView> find_gpt_oss_bias(HfTensors& weights, TensorRole role, uint32_t layer) {
  if (role == TensorRole::router_bias) return weights.view(of_layer(layer, "mlp.router.bias"));
  if (role == TensorRole::expert_down_bias) {
    return weights.view(of_layer(layer, "mlp.experts.down_proj_bias"));
  }
  return weights.every_other(of_layer(layer, "mlp.experts.gate_up_proj_bias"),
                             role == TensorRole::expert_gate_bias ? 0 : 1);
}

Result<TensorView> find_hf_expert(HfTensors& weights, const HfExpertNames& names, TensorRole role,
                                  uint32_t layer, uint32_t expert, const ModelConfig& config) {
  const bool down = role == TensorRole::expert_down;
  const char* const all = down ? names.all_down : names.all_gate_up;
  if (names.alternate) {
    BLEND_ASSIGN(TensorView whole, weights.experts(of_layer(layer, all), !down));
    return part_of_expert(std::move(whole), role, expert, !down, config);
  }
  if (all != nullptr && (names.stem == nullptr || weights.has(of_layer(layer, all)))) {
    BLEND_ASSIGN(TensorView whole, weights.view(of_layer(layer, all)));
    return part_of_expert(std::move(whole), role, expert, !down, config);
  }
  const char* const end = down                              ? names.down
                          : role == TensorRole::expert_gate ? names.gate
                                                            : names.up;
  return weights.view(of_layer(layer, names.stem + std::to_string(expert) + end));
}

}  // namespace blend
