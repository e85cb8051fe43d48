#include "model/hf_source.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "base/files/mapped_file.h"
#include "model/dense.h"
#include "model/fingerprint.h"
#include "model/fused_tensors.h"
#include "model/hf_config.h"
#include "model/hf_experts.h"
#include "model/hf_nemotron.h"
#include "model/hf_tensors.h"
#include "model/hf_tokenizer.h"
#include "model/json_file.h"
#include "model/key_head_rows.h"
#include "model/latent_rows.h"
#include "model/lora/lora_adapter.h"
#include "model/tensor_table.h"

namespace blend {
namespace {

// In TensorRole's order; those of a layer follow "model.layers.<layer>.". Gemma has the same names
// for other norms, below.
constexpr std::array<const char*, kTensorRoles> kHfNames = {
    "model.embed_tokens.weight",
    "model.norm.weight",
    "lm_head.weight",
    "input_layernorm.weight",
    "self_attn.q_proj.weight",
    "self_attn.k_proj.weight",
    "self_attn.v_proj.weight",
    "self_attn.o_proj.weight",
    "post_attention_layernorm.weight",
    "mlp.gate_proj.weight",
    "mlp.up_proj.weight",
    "mlp.down_proj.weight",
    "self_attn.q_proj.bias",
    "self_attn.k_proj.bias",
    "self_attn.v_proj.bias",
    "self_attn.o_proj.bias",
    "self_attn.q_norm.weight",
    "self_attn.k_norm.weight",
    "self_attn.sinks",
    "post_attention_layernorm.weight",
    "mlp.gate_proj.bias",
    "mlp.up_proj.bias",
    "mlp.down_proj.bias",
    "post_feedforward_layernorm.weight",
    nullptr,  // parts of "conv.in_proj.weight"
    nullptr,
    nullptr,
    "conv.conv.weight",
    "conv.out_proj.weight",
    "linear_attn.in_proj_qkv.weight",
    "linear_attn.in_proj_z.weight",
    "linear_attn.in_proj_b.weight",
    "linear_attn.in_proj_a.weight",
    "linear_attn.conv1d.weight",
    "linear_attn.A_log",
    "linear_attn.dt_bias",
    "linear_attn.norm.weight",
    "linear_attn.out_proj.weight",
    nullptr,  // parts of "mamba.in_proj.weight"
    nullptr,
    nullptr,
    "mamba.conv1d.bias",
    "mamba.D",
    "self_attn.kv_a_proj_with_mqa.weight",
    "self_attn.kv_a_layernorm.weight",
    nullptr,  // parts of "self_attn.kv_b_proj.weight"
    nullptr,
    "self_attn.q_a_proj.weight",
    "self_attn.q_a_layernorm.weight",
    "mlp.gate.weight",
    "mlp.moe_statics.e_score_correction_bias",
    "mlp.shared_experts.gate_proj.weight",
    "mlp.shared_experts.up_proj.weight",
    "mlp.shared_experts.down_proj.weight",
    "mlp.shared_expert_gate.weight",
    nullptr,  // biases beside experts: hf_experts.h
    nullptr,
    nullptr,
    nullptr,
    "router.scale",
    "router.per_expert_scale",
    "pre_feedforward_layernorm_2.weight",
    "post_feedforward_layernorm_2.weight",
    "post_feedforward_layernorm_1.weight",
    nullptr,  // of a Nemotron alone: hf_nemotron.h
    nullptr,
    "per_layer_input_gate.weight",
    "per_layer_projection.weight",
    "post_per_layer_input_norm.weight",
    "layer_scalar",
    "laurel.linear_left.weight",
    "laurel.linear_right.weight",
    "laurel.post_laurel_norm.weight",
    "altup.modality_router.weight",
    "altup.router_norm.weight",
    "altup.prediction_coefs.weight",
    "altup.correction_coefs.weight",
    "altup.correct_output_scale",
    "model.embed_tokens_per_layer.weight",
    "model.per_layer_model_projection.weight",
    "model.per_layer_projection_norm.weight",
    "model.altup_projections.",  // of each stream: its number, and ".weight"
    "model.altup_unembed_projections.",
    nullptr,  // experts: hf_experts.h
    nullptr,
    nullptr,
};

constexpr const char* kOutput = kHfNames[static_cast<size_t>(TensorRole::output)];

// The fused tensor of a role; null: it has one of its own.
const char* fused_name(TensorRole role, const HfConfig& hf) {
  switch (fused_tensor_of(role)) {
    case FusedTensor::qkv:
      return hf.fused ? "self_attn.qkv_proj.weight" : nullptr;
    case FusedTensor::shared_gate_up:
      return hf.granite_shared ? "shared_mlp.input_linear.weight" : nullptr;
    case FusedTensor::gate_up:
      if (hf.shared_mlp) return "shared_mlp.input_linear.weight";
      return hf.fused ? "mlp.gate_up_proj.weight" : nullptr;
    case FusedTensor::conv_in:
      return "conv.in_proj.weight";
    case FusedTensor::delta_qkvz:
      return hf.by_key_head ? "linear_attn.in_proj_qkvz.weight" : nullptr;
    case FusedTensor::delta_ba:
      return hf.by_key_head ? "linear_attn.in_proj_ba.weight" : nullptr;
    case FusedTensor::ssm_in:
      return hf.nemotron ? hf_nemotron_name(role) : "mamba.in_proj.weight";
    default:
      return nullptr;
  }
}

// LFM2's names that differ from a Llama's; null: the role has none.
const char* lfm2_name(TensorRole role) {
  switch (role) {
    case TensorRole::output_norm:
      return "model.embedding_norm.weight";
    case TensorRole::attn_norm:
      return "operator_norm.weight";
    case TensorRole::ffn_norm:
      return "ffn_norm.weight";
    case TensorRole::attn_out:
      return "self_attn.out_proj.weight";
    case TensorRole::attn_q_norm:
      return "self_attn.q_layernorm.weight";
    case TensorRole::attn_k_norm:
      return "self_attn.k_layernorm.weight";
    case TensorRole::ffn_gate:
      return "feed_forward.w1.weight";
    case TensorRole::ffn_up:
      return "feed_forward.w3.weight";
    case TensorRole::ffn_down:
      return "feed_forward.w2.weight";
    default:
      return nullptr;
  }
}

// Falcon-H1's.
const char* falcon_h1_name(TensorRole role) {
  switch (role) {
    case TensorRole::output_norm:
      return "model.final_layernorm.weight";
    case TensorRole::ffn_norm:
      return "pre_ff_layernorm.weight";
    case TensorRole::ffn_gate:
      return "feed_forward.gate_proj.weight";
    case TensorRole::ffn_up:
      return "feed_forward.up_proj.weight";
    case TensorRole::ffn_down:
      return "feed_forward.down_proj.weight";
    default:
      return nullptr;
  }
}

// Those of a Qwen's only shared expert.
const char* shared_expert_name(TensorRole role) {
  switch (role) {
    case TensorRole::shared_gate:
      return "mlp.shared_expert.gate_proj.weight";
    case TensorRole::shared_up:
      return "mlp.shared_expert.up_proj.weight";
    case TensorRole::shared_down:
      return "mlp.shared_expert.down_proj.weight";
    default:
      return nullptr;
  }
}

// What a Mamba-2 calls those that Gated DeltaNets have too; null: it is none of these.
const char* mamba_name(TensorRole role) {
  switch (role) {
    case TensorRole::scan_taps:
      return "mamba.conv1d.weight";
    case TensorRole::scan_decay:
      return "mamba.A_log";
    case TensorRole::scan_bias:
      return "mamba.dt_bias";
    case TensorRole::scan_norm:
      return "mamba.norm.weight";
    case TensorRole::scan_out:
      return "mamba.out_proj.weight";
    default:
      return nullptr;
  }
}

const char* own_name(TensorRole role, const HfConfig& hf) {
  if (hf.nemotron) return hf_nemotron_name(role);
  if (role == TensorRole::ffn_norm && hf.model.post_norms) {
    return "pre_feedforward_layernorm.weight";
  }
  if (role == TensorRole::ffn_down && hf.shared_mlp) return "shared_mlp.output_linear.weight";
  if (role == TensorRole::shared_down && hf.granite_shared) {
    return "shared_mlp.output_linear.weight";
  }
  if (role == TensorRole::attn_q && hf.model.latent.q_rank != 0) return "self_attn.q_b_proj.weight";
  if (role == TensorRole::attn_q_norm && hf.layer_norms) return "self_attn.query_layernorm.weight";
  if (role == TensorRole::attn_k_norm && hf.layer_norms) return "self_attn.key_layernorm.weight";
  if (const char* const name = hf.lfm2 ? lfm2_name(role) : nullptr) return name;
  if (const char* const name = hf.falcon_h1 ? falcon_h1_name(role) : nullptr) return name;
  const bool one_shared = hf.model.experts.shared_weighed;
  if (const char* const name = one_shared ? shared_expert_name(role) : nullptr) return name;
  const bool ssm = hf.model.mixer.kind == RowMixer::Kind::ssm;
  if (const char* const name = ssm ? mamba_name(role) : nullptr) return name;
  return kHfNames[static_cast<size_t>(role)];
}

// Where a model of more than text keeps its language model, and everything else.
constexpr std::string_view kTextModel = "model.", kLanguageModel = "model.language_model.";
constexpr std::string_view kBackbone = "backbone.";  // of a published Nemotron-H
constexpr std::string_view kLayers = "layers.";
constexpr std::string_view kTowers[] = {"model.vision_tower.", "model.audio_tower.",
                                        "model.visual.", "model.embed_vision.",
                                        "model.embed_audio."};

// A file that Python wrote may have infinities, for which JSON has no word: each as transformers 5
// spells it.
std::string spelled_infinities(std::string_view text) {
  constexpr std::string_view kBare = "Infinity", kSpelled = R"({"__float__": "Infinity"})";
  std::string out;
  out.reserve(text.size());
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (quoted && text[i] == '\\' && i + 1 < text.size()) {
      out += text[i++];
    } else if (text[i] == '"') {
      quoted = !quoted;
    } else if (!quoted && text.substr(i, kBare.size()) == kBare) {
      out += kSpelled;
      i += kBare.size() - 1;
      continue;
    }
    out += text[i];
  }
  return out;
}

// "model" of "/some/where/model/".
std::string last_name(std::string path) {
  while (path.ends_with('/')) path.pop_back();
  return path.substr(path.find_last_of('/') + 1);
}

// What sentence-transformers writes beside a model.
Result<Pooling> read_hf_pooling(const std::string& path) {
  constexpr const char* kName = "1_Pooling/config.json";
  BLEND_ASSIGN(const Json json, read_json(path, kName));
  if (json.is_null()) return Pooling::unsaid;
  const JsonView root(json, kName);
  Pooling found = Pooling::unsaid;
  for (const auto& [name, way] : {std::pair("pooling_mode_mean_tokens", Pooling::mean),
                                  std::pair("pooling_mode_lasttoken", Pooling::last),
                                  std::pair("pooling_mode_cls_token", Pooling::first),
                                  std::pair("pooling_mode_max_tokens", Pooling::other),
                                  std::pair("pooling_mode_mean_sqrt_len_tokens", Pooling::other),
                                  std::pair("pooling_mode_weightedmean_tokens", Pooling::other)}) {
    BLEND_ASSIGN(const bool given, root.boolean_or(name, false));
    // Several are put one after the other.
    if (given) found = found == Pooling::unsaid ? way : Pooling::other;
  }
  return found;
}

// Immutable after open; safe for concurrent use.
class HfSource final : public ModelSource {
 public:
  static Result<std::unique_ptr<ModelSource>> open(const std::string& path);

  const ModelConfig& config() const override { return hf_.model; }
  const Tokenizer& tokenizer() const override { return *tokenizer_.tokenizer; }
  const std::string& chat_template() const override { return tokenizer_.chat_template; }
  const TensorView& tensor(TensorRole role, uint32_t layer) const override {
    return tensors_.at(role, layer);
  }
  const TensorView& expert_tensor(TensorRole role, uint32_t layer, uint32_t expert) const override {
    return tensors_.at(role, layer, expert);
  }
  std::span<const TensorView> dense() const override { return dense_.matrices; }
  uint64_t n_parameters() const override { return tensors_.n_elements(); }
  Result<Sha256> fingerprint(const ParallelRun& parallel, const Watch& watch) const override {
    BLEND_RETURN_IF_ERROR(check_tied_output(watch));
    Sha256Hasher hasher;
    hash_config(hf_.model, hasher);
    tokenizer_.tokenizer->hash(hasher);
    BLEND_RETURN_IF_ERROR(hash_tensors(tensors_.all(), parallel, watch, hasher));
    BLEND_RETURN_IF_ERROR(hash_tensors(dense_.matrices, parallel, watch, hasher));
    return hasher.finish();
  }
  Result<LoraAdapter> open_lora(const std::string& path) const override {
    return open_lora_adapter(path, hf_.model, HeadRows::hugging_face);
  }

 private:
  std::string_view stem() const {
    return backbone_ ? kBackbone : hf_.towers ? kLanguageModel : kTextModel;
  }
  std::string layers() const { return std::string(stem()) + std::string(kLayers); }
  std::string prefix(uint32_t layer) const { return layers() + std::to_string(layer) + "."; }
  // What the names of a layer's tensors of a role begin with.
  std::string place(TensorRole role, uint32_t layer) const {
    return prefix(file_layer(role, hf_.model, layer));
  }
  // "model.layers.<layer>.<name>", or as the file calls it.
  std::string name_of(std::string name, TensorRole role, uint32_t layer) const;
  Result<TensorView> find(TensorRole role, uint32_t layer);
  Result<TensorView> find_of_stream(TensorRole role, uint32_t stream);
  bool is_left_out(std::string_view name) const;
  Result<TensorView> find_choice(uint32_t layer);
  Result<TensorView> find_taps(TensorRole role, uint32_t layer);
  Result<TensorView> find_fused(const char* name, TensorRole role, uint32_t layer);
  Status refuse_others() const;
  Status check_tied_output(const Watch& watch) const;

  HfConfig hf_;
  bool backbone_ = false;
  HfTokenizer tokenizer_;
  HfTensors weights_;
  KeyHeadRows key_head_rows_;
  LatentRows latent_rows_;
  TensorTable tensors_;
  std::optional<TensorView> spare_output_;  // beside a tied one
  HfDense dense_;
};

Result<std::unique_ptr<ModelSource>> HfSource::open(const std::string& path) {
  constexpr const char* kConfig = "config.json";
  auto source = std::make_unique<HfSource>();
  BLEND_ASSIGN(const MappedFile file, MappedFile::open(path + "/" + kConfig));
  Result<Json> json = Json::parse(spelled_infinities(text_of(file)));
  if (!json.is_ok()) return json.status().with_context(kConfig);
  const JsonView file_root(*json, "");
  Result<HfConfig> config = read_hf_config(file_root);
  if (!config.is_ok()) return config.status().with_context(kConfig);
  source->hf_ = std::move(*config);
  ModelConfig& c = source->hf_.model;
  c.name = last_name(path);
  const JsonView text =
      source->hf_.towers ? file_root.get("text_config").value_or(file_root) : file_root;
  BLEND_ASSIGN(source->tokenizer_, open_hf_tokenizer(path, text, c.n_vocab));
  BLEND_ASSIGN(source->weights_, HfTensors::open(path, source->hf_.quantization));
  source->backbone_ = source->hf_.nemotron && source->weights_.has("backbone.embeddings.weight");
  // The embedding stands for an output that nobody saved: the model embeds, and must open.
  if (source->weights_.is_headless()) source->hf_.tied = true;
  BLEND_ASSIGN(source->hf_.model.pooling, read_hf_pooling(path));
  BLEND_ASSIGN(source->dense_, open_hf_dense(path));
  BLEND_RETURN_IF_ERROR(check_dense(source->dense_.matrices, c));
  BLEND_ASSIGN(
      source->tensors_,
      TensorTable::fill(c, source->hf_.tied, [&](TensorRole role, uint32_t layer, uint32_t expert) {
        if (is_of_streams(role)) return source->find_of_stream(role, expert);
        if (!is_of_experts(role)) return source->find(role, layer);
        return find_hf_expert(source->weights_, source->place(role, layer), role, layer, expert, c);
      }));
  if (source->hf_.tied && source->weights_.has(kOutput)) {
    BLEND_ASSIGN(source->spare_output_, source->weights_.view(kOutput));
  }
  BLEND_RETURN_IF_ERROR(source->refuse_others());
  const TensorView& usual = source->tensors_.usual_matrix(c);
  c.weight_blocks = usual.blocks;
  c.weight_dtype = usual.blocks == BlockType::none ? usual.dtype : DType::f16;
  return std::unique_ptr<ModelSource>(std::move(source));
}

std::string HfSource::name_of(std::string name, TensorRole role, uint32_t layer) const {
  if (!is_of_model(role)) {
    return place(role, layer) + name;
  }
  if (name.starts_with(kTextModel)) name.replace(0, kTextModel.size(), stem());
  return name;
}

Result<TensorView> HfSource::find(TensorRole role, uint32_t layer) {
  if (role == TensorRole::router) {
    const std::string at = place(role, layer);
    return weights_.view(at + hf_expert_names(weights_, at).router);
  }
  if (role == TensorRole::router_choice) return find_choice(layer);
  if (role >= TensorRole::router_bias && role <= TensorRole::expert_down_bias) {
    return find_gpt_oss_bias(weights_, role, prefix(layer));
  }
  if (role == TensorRole::conv_taps || role == TensorRole::scan_taps) {
    return find_taps(role, layer);
  }
  if (role == TensorRole::latent_k || role == TensorRole::latent_v) {
    BLEND_ASSIGN(const TensorView both,
                 weights_.view(name_of("self_attn.kv_b_proj.weight", role, layer)));
    return latent_rows_.by_role(both, role, hf_.model);
  }
  if (const char* const fused = fused_name(role, hf_)) {
    return find_fused(fused, role, layer);
  }
  BLEND_ASSIGN(TensorView own, weights_.view(name_of(own_name(role, hf_), role, layer)));
  const bool one_row = own.shape.size() == 2 && own.shape[0] == 1;
  if (role == TensorRole::shared_weight && one_row) own.shape.erase(own.shape.begin());
  return own;
}

Result<TensorView> HfSource::find_of_stream(TensorRole role, uint32_t stream) {
  const std::string name = own_name(role, hf_) + std::to_string(stream) + ".weight";
  return weights_.view(name_of(name, role, 0));
}

Result<TensorView> HfSource::find_fused(const char* name, TensorRole role, uint32_t layer) {
  BLEND_ASSIGN(TensorView whole, weights_.view(name_of(name, role, layer)));
  const FusedTensor which = fused_tensor_of(role);
  if (which == FusedTensor::delta_qkvz || which == FusedTensor::delta_ba) {
    BLEND_ASSIGN(whole, key_head_rows_.by_role(whole, which, hf_.model.mixer));
  }
  return part_of_fused(std::move(whole), role, layer, hf_.model);
}

// Tensors that a model of more than text has, layers that predict further tokens (in "mtp."
// too), and K and V of layers that attend over another's.
bool HfSource::is_left_out(std::string_view name) const {
  const auto begins = [&](std::string_view tower) { return name.starts_with(tower); };
  if (hf_.towers && std::any_of(std::begin(kTowers), std::end(kTowers), begins)) return true;
  if (hf_.mtp && name.starts_with("mtp.")) return true;
  const uint32_t layer = layer_of(name, layers());
  if (layer < hf_.model.n_kept() || layer >= hf_.model.n_layers) return false;
  for (const std::string_view end : {".self_attn.k_proj.weight", ".self_attn.v_proj.weight",
                                     ".self_attn.k_norm.weight", ".self_attn.v_norm.weight"}) {
    if (name.ends_with(end)) return true;
  }
  return false;
}

// A convolution's taps. Files have [channels, 1, taps].
Result<TensorView> HfSource::find_taps(TensorRole role, uint32_t layer) {
  BLEND_ASSIGN(TensorView taps, weights_.view(name_of(own_name(role, hf_), role, layer)));
  if (taps.shape.size() == 3 && taps.shape[1] == 1) taps.shape.erase(taps.shape.begin() + 1);
  return taps;
}

// The bias for the choice of experts; ERNIE 4.5's, of the first two names, has a dimension too
// many.
Result<TensorView> HfSource::find_choice(uint32_t layer) {
  constexpr TensorRole kRole = TensorRole::router_choice;
  std::string name = name_of(own_name(kRole, hf_), kRole, layer);
  for (const char* const other : {"mlp.gate.moe_statics.e_score_correction_bias",
                                  "mlp.gate.e_score_correction_bias", "feed_forward.expert_bias"}) {
    const std::string full = name_of(other, kRole, layer);
    if (weights_.has(full)) name = full;
  }
  BLEND_ASSIGN(TensorView bias, weights_.view(name));
  if (bias.shape.size() == 2 && bias.shape[0] == 1) bias.shape.erase(bias.shape.begin());
  return bias;
}

// A tensor that is not used here would change the result where it belongs (adapters):
// better no model than a wrong one.
Status HfSource::refuse_others() const {
  for (const std::string& name : weights_.unused()) {
    // Old files hold the rotation's frequencies, which follow from the base.
    if (name.ends_with(".rotary_emb.inv_freq")) continue;
    if (is_left_out(name)) continue;
    const uint32_t layer = layer_of(name, layers());
    if (layer >= hf_.model.n_layers && layer - hf_.model.n_layers < hf_.layers_ahead) continue;
    std::string shown = name.substr(0, 120);
    for (char& ch : shown) ch = ch >= ' ' && ch < 127 ? ch : '?';
    return make_error(BLEND_E_UNSUPPORTED,
                      "tensor '%s' has no place in a %s of %u layers; a model that needs it is not "
                      "supported",
                      shown.c_str(), hf_.model.architecture.c_str(), hf_.model.n_layers);
  }
  return Status::ok();
}

// A tied output may be in the files a second time, as they hold whatever a trainer kept. Where it
// is another matrix, the config and the weights contradict each other: transformers takes the
// embedding before version 5, and the output's own matrix since. All its bytes are compared, as any
// may differ; that takes no more than the embedding's fingerprint, and can be cancelled like that.
Status HfSource::check_tied_output(const Watch& watch) const {
  constexpr size_t kStep = size_t{16} << 20;
  if (!spare_output_) return Status::ok();
  const TensorView& embedding = tensor(TensorRole::embedding, 0);
  const TensorView& output = *spare_output_;
  bool equal = output.dtype == embedding.dtype && output.shape == embedding.shape;
  for (size_t at = 0; equal && at < embedding.bytes(); at += kStep) {
    BLEND_RETURN_IF_ERROR(watch.check());
    const size_t n = std::min(kStep, embedding.bytes() - at);
    equal = std::memcmp(embedding.data + at, output.data + at, n) == 0;
  }
  if (equal) return Status::ok();
  return make_error(BLEND_E_FORMAT,
                    "tensor '%s' differs from '%s', though tie_word_embeddings says that they are "
                    "one; put '\"tie_word_embeddings\": false' into config.json if the model was "
                    "trained with an output of its own, or take the tensor out of the weights",
                    output.name.c_str(), embedding.name.c_str());
}

}  // namespace

bool is_directory(const std::string& path) {
  struct stat info = {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

Result<std::unique_ptr<ModelSource>> open_hf_directory(const std::string& path) {
  return HfSource::open(path);
}

}  // namespace blend
