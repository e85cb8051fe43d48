// Adapters as PEFT saves them: adapter_config.json, and adapter_model.safetensors with the modules
// of the model by name.
#include <charconv>
#include <cmath>

#include "base/json_reader.h"
#include "model/hf_weights.h"
#include "model/limits.h"
#include "model/lora/lora_builder.h"

namespace blend {
namespace {

constexpr const char* kConfig = "adapter_config.json";
constexpr int64_t kMostRank = 1 << 20;

// A value for the modules whose names end with `suffix`.
template <typename T>
struct Pattern {
  std::string suffix;
  T value;
};

struct PeftConfig {
  int64_t rank = 0;
  double alpha = 0;
  bool by_root = false;  // rsLoRA: alpha / sqrt(rank)
  std::vector<Pattern<int64_t>> ranks;
  std::vector<Pattern<double>> alphas;
};

// PEFT's members that change the computation to one that is not here.
struct Refused {
  const char* name;
  const char* what;
};
constexpr Refused kRefused[] = {
    {"use_dora", "DoRA"},
    {"modules_to_save", "modules that are replaced as a whole"},
    {"lora_bias", "biases"},
    {"fan_in_fan_out", "matrices that are stored turned"},
    {"layer_replication", "layers that are repeated"},
    {"alora_invocation_tokens", "activated LoRA, which begins in the middle of a prompt"},
    {"trainable_token_indices", "tokens that are trained by themselves"},
    {"target_parameters", "parameters that belong to no module"},
    {"use_qalora", "QALoRA"},
    {"use_bdlora", "BD-LoRA"},
    {"ensure_weight_tying", "adapters that embedding and output share"},
    {"arrow_config", "Arrow"},
};

// Whether it says that the computation is not wanted.
bool is_off(const Json& value) {
  if (const bool* const b = value.boolean()) return !*b;
  if (const Json::Array* const a = value.array()) return a->empty();
  if (const Json::Object* const o = value.object()) return o->empty();
  return value.is_null();
}

Status refuse_others(const JsonView& root) {
  BLEND_ASSIGN(const std::string type, root.string_or("peft_type", "LORA"));
  if (type != "LORA") {
    return make_error(BLEND_E_UNSUPPORTED, "peft_type is '%s'; libblend computes LORA alone",
                      shown_name(type).c_str());
  }
  for (const Refused& r : kRefused) {
    const std::optional<JsonView> member = root.get(r.name);
    if (!member || is_off(member->value())) continue;
    return make_error(BLEND_E_UNSUPPORTED, "%s: libblend has no %s", r.name, r.what);
  }
  // Most ways to begin leave the model's matrices alone. Others take their part out of them, and
  // what is left is not in the adapter.
  if (const std::optional<JsonView> init = root.get("init_lora_weights");
      init && init->value().string() != nullptr) {
    BLEND_ASSIGN(const std::string how, init->string());
    if (how != "gaussian" && how != "eva" && how != "orthogonal") {
      return make_error(BLEND_E_UNSUPPORTED,
                        "init_lora_weights is '%s', which changes the model's own matrices: save "
                        "the adapter converted to a plain LoRA (PEFT: "
                        "path_initial_model_for_weight_conversion)",
                        shown_name(how).c_str());
    }
  }
  BLEND_ASSIGN(const std::string bias, root.string_or("bias", "none"));
  if (bias == "none") return Status::ok();
  return make_error(BLEND_E_UNSUPPORTED, "bias is '%s': libblend adapts no biases",
                    shown_name(bias).c_str());
}

// PEFT takes the keys for regular expressions; nearly all are names, or ends of names.
template <typename T, typename Read>
Status read_patterns(const JsonView& root, const char* member, const Read& read,
                     std::vector<Pattern<T>>& out) {
  const std::optional<JsonView> patterns = root.get(member);
  if (!patterns) return Status::ok();
  BLEND_ASSIGN(const Json::Object* const entries, patterns->object());
  for (const auto& [key, value] : *entries) {
    const std::string shown = shown_name(key);
    const bool plain = std::all_of(key.begin(), key.end(), [](unsigned char c) {
      return std::isalnum(c) != 0 || c == '_' || c == '.';
    });
    if (!plain || key.empty()) {
      return make_error(BLEND_E_UNSUPPORTED,
                        "%s['%s'] is a regular expression; libblend reads names of modules there",
                        member, shown.c_str());
    }
    BLEND_ASSIGN(T number, read(JsonView(value, std::string(member) + "['" + shown + "']")));
    out.push_back({key, number});
  }
  return Status::ok();
}

Result<PeftConfig> read_config(std::string_view text) {
  BLEND_ASSIGN(const Json json, Json::parse(text));
  const JsonView root(json, "");
  BLEND_RETURN_IF_ERROR(root.object().status());
  BLEND_RETURN_IF_ERROR(refuse_others(root));
  PeftConfig config;
  BLEND_ASSIGN(const JsonView rank, root.need("r"));
  BLEND_ASSIGN(config.rank, rank.integer(1, kMostRank));
  BLEND_ASSIGN(const JsonView alpha, root.need("lora_alpha"));
  BLEND_ASSIGN(config.alpha, alpha.number());
  BLEND_ASSIGN(config.by_root, root.boolean_or("use_rslora", false));
  BLEND_RETURN_IF_ERROR(read_patterns<int64_t>(
      root, "rank_pattern", [](const JsonView& v) { return v.integer(1, kMostRank); },
      config.ranks));
  BLEND_RETURN_IF_ERROR(read_patterns<double>(
      root, "alpha_pattern", [](const JsonView& v) { return v.number(); }, config.alphas));
  return config;
}

// The first pattern's that the module's name is, or ends with behind a point.
template <typename T>
T value_for(const std::string& module, const std::vector<Pattern<T>>& patterns, T otherwise) {
  for (const Pattern<T>& p : patterns) {
    if (!module.ends_with(p.suffix)) continue;
    const size_t before = module.size() - p.suffix.size();
    if (before == 0 || module[before - 1] == '.') return p.value;
  }
  return otherwise;
}

struct Module {
  std::string_view name;  // behind "model.layers.<layer>."
  std::vector<TensorRole> roles;
};

const std::vector<Module>& modules() {
  using R = TensorRole;
  static const std::vector<Module> all = {
      {"self_attn.q_proj", {R::attn_q}},
      {"self_attn.k_proj", {R::attn_k}},
      {"self_attn.v_proj", {R::attn_v}},
      {"self_attn.qkv_proj", {R::attn_q, R::attn_k, R::attn_v}},
      {"self_attn.o_proj", {R::attn_out}},
      {"mlp.gate_proj", {R::ffn_gate}},
      {"mlp.up_proj", {R::ffn_up}},
      {"mlp.gate_up_proj", {R::ffn_gate, R::ffn_up}},
      {"mlp.down_proj", {R::ffn_down}},
      {"per_layer_input_gate", {R::input_gate}},
      {"per_layer_projection", {R::input_out}},
      {"shared_mlp.input_linear", {R::ffn_gate, R::ffn_up}},
      {"shared_mlp.output_linear", {R::ffn_down}},
      {"self_attn.out_proj", {R::attn_out}},  // LFM2's names
      {"feed_forward.w1", {R::ffn_gate}},
      {"feed_forward.w3", {R::ffn_up}},
      {"feed_forward.w2", {R::ffn_down}},
      {"conv.in_proj", {R::conv_b, R::conv_c, R::conv_x}},
      {"conv.out_proj", {R::conv_out}},
  };
  return all;
}

constexpr std::string_view kModel = "model.", kEmbedding = "embed_tokens";

// An adapter of a model without its output, for embeddings, lacks the first part.
bool is_embedding(std::string_view module) {
  if (module.starts_with(kModel)) module.remove_prefix(kModel.size());
  return module == kEmbedding;
}

Result<LoraTarget> target_of(const std::string& module) {
  constexpr std::string_view kLayers = "layers.";
  if (module == "lm_head") return LoraTarget{{TensorRole::output}, 0};
  std::string_view rest = module;
  if (rest.starts_with(kModel)) rest.remove_prefix(kModel.size());
  if (rest == kEmbedding) return LoraTarget{{TensorRole::embedding}, 0};
  uint32_t layer = 0;
  if (rest.starts_with(kLayers)) {
    rest.remove_prefix(kLayers.size());
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), layer);
    if (error == std::errc() && layer < kMaxLayers) {
      rest.remove_prefix(static_cast<size_t>(end - rest.data()));
      for (const Module& m : modules()) {
        if (rest.starts_with('.') && rest.substr(1) == m.name) return LoraTarget{m.roles, layer};
      }
    }
  }
  const bool experts = module.find(".experts") != std::string::npos ||
                       module.find("shared_expert") != std::string::npos ||
                       module.find("block_sparse_moe") != std::string::npos;
  return no_lora_of(module, experts ? "experts" : "a module of this name");
}

// "base_model.model.<module>.lora_A.weight", or "base_model.model.<module>.lora_embedding_A".
Status take_tensor(const SafetensorsTensor& t, std::span<const std::byte> file,
                   LoraBuilder& builder) {
  constexpr std::string_view kFirst = "base_model.model.";
  const bool of_embedding = t.name.find(".lora_embedding_") != std::string::npos;
  const std::string_view down_end = of_embedding ? ".lora_embedding_A" : ".lora_A.weight";
  const std::string_view up_end = of_embedding ? ".lora_embedding_B" : ".lora_B.weight";
  const bool down = t.name.ends_with(down_end), up = t.name.ends_with(up_end);
  if (t.name.find(".lora_magnitude_vector") != std::string::npos) {
    return no_lora_of(t.name, "DoRA's magnitudes");
  }
  if (t.name.ends_with(".base_layer.weight")) {
    return make_error(BLEND_E_UNSUPPORTED,
                      "tensor '%s' is a whole matrix of a model; PEFT leaves it out of an adapter "
                      "that is saved with save_embedding_layers=False",
                      shown_name(t.name).c_str());
  }
  if (!t.name.starts_with(kFirst) || (!down && !up)) {
    return no_lora_of(t.name, "a tensor that is no '.lora_A.weight' or '.lora_B.weight'");
  }
  BLEND_ASSIGN(TensorView view, hf_view(t, file));
  const std::string of = t.name.substr(
      kFirst.size(), t.name.size() - kFirst.size() - (down ? down_end : up_end).size());
  if (of_embedding != is_embedding(of)) {
    return no_lora_of(t.name, of_embedding ? "another embedding than that of the tokens"
                                           : "an embedding as if it were a matrix");
  }
  down ? builder.add_down(of, std::move(view)) : builder.add_up(of, std::move(view));
  return Status::ok();
}

}  // namespace

Result<LoraAdapter> read_peft_lora(std::string_view config_json,
                                   std::span<const std::byte> safetensors,
                                   const ModelConfig& config, HeadRows rows) {
  Result<PeftConfig> read = read_config(config_json);
  if (!read.is_ok()) return read.status().with_context(kConfig);
  const PeftConfig& peft = *read;
  BLEND_ASSIGN(const SafetensorsReader reader, SafetensorsReader::parse(safetensors));
  LoraBuilder builder(config, HeadRows::hugging_face, rows);
  for (const SafetensorsTensor& t : reader.tensors()) {
    BLEND_RETURN_IF_ERROR(take_tensor(t, safetensors, builder));
  }
  const auto factor = [&](const std::string& module, size_t rank) -> Result<double> {
    const int64_t said = value_for(module, peft.ranks, peft.rank);
    if (said != static_cast<int64_t>(rank)) {
      return make_error(BLEND_E_FORMAT, "'%s' has the rank %zu, and %s says %lld",
                        shown_name(module).c_str(), rank, kConfig, static_cast<long long>(said));
    }
    const double alpha = value_for(module, peft.alphas, peft.alpha);
    const auto r = static_cast<double>(rank);
    return alpha / (peft.by_root ? std::sqrt(r) : r);
  };
  return builder.finish([](const std::string& module) { return target_of(module); }, factor);
}

}  // namespace blend
