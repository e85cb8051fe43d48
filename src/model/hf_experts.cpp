#include "model/hf_experts.h"

#include <algorithm>
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
    {"router.proj.weight", "experts.gate_up_proj", "experts.down_proj", nullptr, nullptr, nullptr,
     nullptr},
    {"mixer.gate.weight", "mixer.experts.up_proj", "mixer.experts.down_proj", "mixer.experts.",
     nullptr, ".up_proj.weight", ".down_proj.weight"},
};

// What transformers takes where a file does not say. width 0: that of the feed-forward, which the
// file then has no other for.
struct Usual {
  uint32_t count = 8, used = 2, width = 0, shared = 0;
};
Usual usual_of(HfExperts kind) {
  switch (kind) {
    case HfExperts::qwen:
      return {.count = 128, .used = 8, .width = 768};
    case HfExperts::qwen2:
      return {.count = 60, .used = 4, .width = 1408, .shared = 5632};
    case HfExperts::qwen3_next:
      return {.count = 512, .used = 10, .width = 512, .shared = 512};
    case HfExperts::qwen3_5:
      return {.count = 256, .used = 8, .width = 512, .shared = 512};
    case HfExperts::olmoe:
      return {.count = 64, .used = 8};
    case HfExperts::ernie:
      return {.count = 64, .used = 6, .width = 1536};
    case HfExperts::lfm2:
      return {.count = 32, .used = 4, .width = 1792};
    case HfExperts::gpt_oss:
      return {.count = 128, .used = 4};
    case HfExperts::nemotron:
      return {.count = 8, .used = 2, .width = 7688, .shared = 7688};
    default:
      return {};
  }
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
  // A number that a file must have.
  Result<uint32_t> needed(const char* name, uint32_t max) const;
  Status read_counts();
  Status read_deepseek();
  Status read_nemotron();
  Status read_groups();
  Status read_deepseek2();
  Status read_listed_types();
  Status read_gemma4();
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

Result<uint32_t> HfExpertsReader::needed(const char* name, uint32_t max) const {
  BLEND_ASSIGN(const JsonView value, root_.need(name));
  BLEND_ASSIGN(const int64_t n, value.integer(1, max));
  return static_cast<uint32_t>(n);
}

Result<Experts> HfExpertsReader::read() {
  if (kind_ == HfExperts::gemma4) {
    BLEND_ASSIGN(const bool any, root_.boolean_or("enable_moe_block", false));
    if (!any) return Experts();
  }
  BLEND_RETURN_IF_ERROR(refuse_others());
  if (kind_ == HfExperts::gemma4) {
    BLEND_RETURN_IF_ERROR(read_gemma4());
    return std::move(out_);
  }
  if (kind_ == HfExperts::nemotron) {
    BLEND_RETURN_IF_ERROR(read_nemotron());
    return std::move(out_);
  }
  if (kind_ == HfExperts::deepseek || kind_ == HfExperts::deepseek2) {
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
                    kind_ == HfExperts::ernie || kind_ == HfExperts::gpt_oss ||
                    kind_ == HfExperts::qwen3_5;
  if (!out_.normalised) {
    const bool usual = kind_ == HfExperts::lfm2 || kind_ == HfExperts::qwen3_next;
    if (kind_ == HfExperts::deepseek && config_.latent.any()) {
      BLEND_RETURN_IF_ERROR(root_.need("norm_topk_prob").status());
    }
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
  const Usual usual = usual_of(kind_);
  BLEND_ASSIGN(out_.count,
               number({"num_experts", "num_local_experts", "moe_num_experts", "n_routed_experts"},
                      usual.count, 1, kMaxExperts));
  BLEND_ASSIGN(out_.used, number({"num_experts_per_tok", "moe_k"}, usual.used, 1, kMaxExperts));
  if (out_.used > out_.count) {
    return make_error(BLEND_E_FORMAT, "%s is %u of %u experts",
                      root_.get("moe_k") ? "moe_k" : "num_experts_per_tok", out_.used, out_.count);
  }
  out_.d_ff = config_.d_ff;
  if (usual.width == 0) return Status::ok();
  BLEND_ASSIGN(out_.d_ff, number({"moe_intermediate_size"}, usual.width, 1, kMaxWidth));
  return kind_ == HfExperts::lfm2 ? read_scale() : Status::ok();
}

Status HfExpertsReader::read_gemma4() {
  BLEND_ASSIGN(out_.count, needed("num_experts", kMaxExperts));
  BLEND_ASSIGN(out_.used, needed("top_k_experts", out_.count));
  BLEND_ASSIGN(out_.d_ff, needed("moe_intermediate_size", kMaxWidth));
  out_.normalised = out_.beside_dense = true;
  return Status::ok();
}

// Families differ in what they take for granted, so their files must say it.
Status HfExpertsReader::read_deepseek() {
  BLEND_ASSIGN(out_.count, needed("n_routed_experts", kMaxExperts));
  BLEND_ASSIGN(out_.used, needed("num_experts_per_tok", out_.count));
  BLEND_ASSIGN(out_.d_ff, needed("moe_intermediate_size", kMaxWidth));
  BLEND_ASSIGN(const uint32_t shared, number({"n_shared_experts"}, 0, 0, kMaxWidth / out_.d_ff));
  out_.shared_d_ff = shared * out_.d_ff;
  if (kind_ == HfExperts::deepseek2) {
    BLEND_RETURN_IF_ERROR(read_deepseek2());
  } else if (config_.latent.any()) {
    for (const char* const name : {"n_group", "topk_group", "routed_scaling_factor"}) {
      BLEND_RETURN_IF_ERROR(root_.need(name).status());
    }
  }
  BLEND_RETURN_IF_ERROR(read_groups());
  return read_scale();
}

Status HfExpertsReader::read_nemotron() {
  const Usual usual = usual_of(kind_);
  BLEND_RETURN_IF_ERROR(read_counts());
  BLEND_ASSIGN(out_.shared_d_ff,
               number({"moe_shared_expert_intermediate_size"}, usual.shared, 1, kMaxWidth));
  BLEND_ASSIGN(out_.latent, number({"moe_latent_size"}, 0, 1, kMaxWidth));
  BLEND_RETURN_IF_ERROR(read_groups());
  out_.sigmoid = out_.choice_bias = true;
  BLEND_ASSIGN(out_.normalised, root_.boolean_or("norm_topk_prob", true));
  out_.dense = config_.experts.dense;
  return read_scale();
}

Status HfExpertsReader::read_groups() {
  BLEND_ASSIGN(out_.groups, number({"n_group"}, 1, 1, kMaxExpertGroups));
  BLEND_ASSIGN(out_.used_groups, number({"topk_group"}, out_.groups, 1, kMaxExpertGroups));
  if (kind_ == HfExperts::deepseek2 && !out_.groups_by_best) out_.groups = out_.used_groups = 1;
  if (out_.groups == 1) out_.groups_by_best = false;
  if (!experts_fit_groups(out_)) {
    return make_error(BLEND_E_FORMAT,
                      "n_group and topk_group are %u and %u, which make no sense for %u experts, "
                      "%u of them used",
                      out_.groups, out_.used_groups, out_.count, out_.used);
  }
  return Status::ok();
}

// What transformers runs, and what the config of such a model might ask for besides.
Status HfExpertsReader::read_deepseek2() {
  BLEND_ASSIGN(const std::string method, root_.string_or("topk_method", "greedy"));
  out_.groups_by_best = method == "group_limited_greedy";
  if (method != "greedy" && !out_.groups_by_best) {
    return make_error(BLEND_E_UNSUPPORTED, "topk_method '%.40s' is not supported", method.c_str());
  }
  BLEND_ASSIGN(const std::string scores, root_.string_or("scoring_func", "softmax"));
  if (scores != "softmax") {
    return make_error(BLEND_E_UNSUPPORTED, "scoring_func '%.40s' is not supported in such a model",
                      scores.c_str());
  }
  BLEND_ASSIGN(const bool normalised, root_.boolean_or("norm_topk_prob", false));
  if (!normalised) return Status::ok();
  return {BLEND_E_UNSUPPORTED, "norm_topk_prob: transformers does not do it in such a model"};
}

Status HfExpertsReader::read_scale() {
  const std::optional<JsonView> scale = root_.get("routed_scaling_factor");
  if (!scale) return Status::ok();
  BLEND_ASSIGN(out_.scale, scale->positive());
  return Status::ok();
}

Status HfExpertsReader::read_shared() {
  if (kind_ == HfExperts::granite) {
    BLEND_ASSIGN(out_.shared_d_ff, number({"shared_intermediate_size"}, 0, 0, kMaxWidth));
  }
  if (const uint32_t usual = usual_of(kind_).shared; usual != 0) {
    BLEND_ASSIGN(out_.shared_d_ff,
                 number({"shared_expert_intermediate_size"}, usual, 1, kMaxWidth));
    out_.shared_weighed = true;
  }
  if (kind_ != HfExperts::ernie) return Status::ok();
  BLEND_ASSIGN(const uint32_t n, number({"moe_num_shared_experts"}, 2, 0, kMaxWidth / out_.d_ff));
  out_.shared_d_ff = n * out_.d_ff;
  return Status::ok();
}

Status HfExpertsReader::read_layers() {
  uint32_t first = 0, last = config_.n_layers - 1, step = 1;
  out_.dense.assign(config_.n_layers, false);
  if (kind_ == HfExperts::qwen || kind_ == HfExperts::qwen2 || kind_ == HfExperts::qwen3_next) {
    BLEND_RETURN_IF_ERROR(read_listed(step));
  }
  if (kind_ == HfExperts::deepseek || kind_ == HfExperts::deepseek2) {
    const bool glm_lite = config_.architecture == "glm4_moe_lite";
    const uint32_t usual = glm_lite ? 1 : config_.architecture == "deepseek_v3" ? 3 : 0;
    if (glm_lite && root_.get("mlp_layer_types")) {
      BLEND_RETURN_IF_ERROR(read_listed_types());
    } else {
      BLEND_ASSIGN(first, number({"first_k_dense_replace"}, usual, 0, kMaxLayers));
    }
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

// "dense" or "sparse" for each layer.
Status HfExpertsReader::read_listed_types() {
  BLEND_ASSIGN(const JsonView list, root_.need("mlp_layer_types"));
  BLEND_ASSIGN(const Json::Array* const entries, list.array());
  if (entries->size() != out_.dense.size()) {
    return make_error(BLEND_E_FORMAT, "mlp_layer_types has %zu entries for %zu layers",
                      entries->size(), out_.dense.size());
  }
  for (size_t i = 0; i < entries->size(); ++i) {
    BLEND_ASSIGN(const std::string type, list.element(i).string());
    out_.dense[i] = type == "dense";
    if (out_.dense[i] || type == "sparse") continue;
    return make_error(BLEND_E_UNSUPPORTED, "mlp_layer_types[%zu]: '%.40s' is not supported", i,
                      type.c_str());
  }
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

const HfExpertNames& hf_expert_names(const HfTensors& weights, const std::string& layer) {
  for (const HfExpertNames& names : kNames) {
    if (weights.has(layer + names.router)) return names;
  }
  return kNames[0];
}

Result<TensorView> find_gpt_oss_bias(HfTensors& weights, TensorRole role,
                                     const std::string& layer) {
  if (role == TensorRole::router_bias) return weights.view(layer + "mlp.router.bias");
  if (role == TensorRole::expert_down_bias) {
    return weights.view(layer + "mlp.experts.down_proj_bias");
  }
  return weights.every_other(layer + "mlp.experts.gate_up_proj_bias",
                             role == TensorRole::expert_gate_bias ? 0 : 1);
}

Result<TensorView> find_hf_expert(HfTensors& weights, const std::string& prefix, TensorRole role,
                                  uint32_t layer, uint32_t expert, const ModelConfig& config) {
  const HfExpertNames& names = hf_expert_names(weights, prefix);
  const bool down = role == TensorRole::expert_down;
  const char* const all = down ? names.all_down : names.all_gate_up;
  if (names.alternate) {
    BLEND_ASSIGN(TensorView whole, weights.experts(prefix + all, !down));
    return part_of_expert(std::move(whole), role, layer, expert, !down, config);
  }
  if (all != nullptr && (names.stem == nullptr || weights.has(prefix + all))) {
    BLEND_ASSIGN(TensorView whole, weights.view(prefix + all));
    const bool fused = !down && config.ffn_matrices() == 3;
    return part_of_expert(std::move(whole), role, layer, expert, fused, config);
  }
  const char* const end = down                              ? names.down
                          : role == TensorRole::expert_gate ? names.gate
                                                            : names.up;
  return weights.view(prefix + names.stem + std::to_string(expert) + end);
}

}  // namespace blend
