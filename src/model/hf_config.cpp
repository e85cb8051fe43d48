#include "model/hf_config.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "model/hf_config_reader.h"
#include "model/hf_experts.h"
#include "model/hf_mamba.h"
#include "model/hf_nemotron.h"
#include "model/limits.h"

namespace blend {

Result<float> HfConfigReader::positive_or(const char* name, double otherwise) const {
  const std::optional<JsonView> value = root_.get(name);
  return value ? value->positive() : Result<float>(static_cast<float>(otherwise));
}

Result<HfConfig> HfConfigReader::read() {
  c_.architecture = family_.model_type;
  if (family_.granite4) BLEND_RETURN_IF_ERROR(find_granite4_experts());
  BLEND_RETURN_IF_ERROR(read_shape());
  if (family_.latent) BLEND_RETURN_IF_ERROR(read_latent());
  BLEND_RETURN_IF_ERROR(read_conv());
  if (family_.granite4) BLEND_RETURN_IF_ERROR(read_hf_mamba(root_, c_));
  if (family_.delta) BLEND_RETURN_IF_ERROR(read_delta());
  BLEND_RETURN_IF_ERROR(read_tensors());
  BLEND_RETURN_IF_ERROR(family_.gemma4 ? read_gemma4_ropes() : read_ropes());
  BLEND_RETURN_IF_ERROR(read_layers());
  if (family_.gemma4) {
    BLEND_RETURN_IF_ERROR(read_gemma4());
  } else if (family_.gemma) {
    BLEND_RETURN_IF_ERROR(family_.gemma3n ? read_gemma3n() : read_gemma());
  }
  if (family_.granite) BLEND_RETURN_IF_ERROR(read_granite());
  if (family_.falcon_h1) BLEND_RETURN_IF_ERROR(read_falcon_h1());
  BLEND_ASSIGN(c_.experts, read_hf_experts(root_, experts_, c_));
  out_.granite_shared = experts_ == HfExperts::granite;
  out_.by_key_head = family_.by_key_head;
  const char* name = family_.delta ? "mtp_num_hidden_layers" : "num_nextn_predict_layers";
  if (family_.latent && root_.get("num_mtp_layers")) name = "num_mtp_layers";
  // A Qwen3-Next has one and does not say so; others may.
  const int64_t unsaid = family_.by_key_head || family_.latent ? 1 : 0;
  BLEND_ASSIGN(const int64_t ahead, integer_or(name, unsaid, 0, kMaxLayers));
  if (family_.delta) {
    out_.mtp = ahead != 0;
  } else {
    out_.layers_ahead = static_cast<uint32_t>(ahead);
  }
  return std::move(out_);
}

Status HfConfigReader::read_shape() {
  BLEND_ASSIGN(const int64_t layers, integer("num_hidden_layers", kMaxLayers));
  BLEND_ASSIGN(const int64_t width, integer("hidden_size", kMaxWidth));
  BLEND_ASSIGN(const int64_t ff, read_d_ff());
  BLEND_ASSIGN(const int64_t vocab, integer("vocab_size", kMaxVocab));
  BLEND_ASSIGN(const int64_t context, integer("max_position_embeddings", kMaxContext));
  BLEND_ASSIGN(const int64_t heads, integer("num_attention_heads", kMaxHeads));
  BLEND_ASSIGN(const int64_t kv_heads, integer_or("num_key_value_heads", heads, 1, kMaxHeads));
  if (heads % kv_heads != 0) {
    return make_error(BLEND_E_FORMAT,
                      "num_attention_heads is %lld, no multiple of num_key_value_heads, %lld",
                      static_cast<long long>(heads), static_cast<long long>(kv_heads));
  }
  const int64_t share = family_.head_dim != 0 ? family_.head_dim : width / heads;
  if (!root_.get("head_dim") && family_.head_dim == 0 && !family_.latent && width % heads != 0) {
    return make_error(BLEND_E_FORMAT,
                      "hidden_size is %lld, no multiple of num_attention_heads, %lld, and head_dim "
                      "is missing",
                      static_cast<long long>(width), static_cast<long long>(heads));
  }
  BLEND_ASSIGN(const int64_t head_dim, integer_or("head_dim", share, 1, kMaxHeadDim));
  c_.n_layers = static_cast<uint32_t>(layers);
  c_.d_model = static_cast<uint32_t>(width);
  c_.d_ff = static_cast<uint32_t>(ff);
  c_.n_vocab = static_cast<uint32_t>(vocab);
  c_.context_length = static_cast<uint32_t>(context);
  c_.n_heads = static_cast<uint32_t>(heads);
  c_.n_kv_heads = static_cast<uint32_t>(kv_heads);
  c_.head_dim = static_cast<uint32_t>(head_dim);
  const char* const eps_name = family_.convolves ? "norm_eps" : "rms_norm_eps";
  BLEND_ASSIGN(c_.rms_eps, positive_or(eps_name, family_.eps));
  if (c_.rms_eps < 1) return Status::ok();
  return make_error(BLEND_E_FORMAT, "%s is %g; it must be below 1", eps_name,
                    static_cast<double>(c_.rms_eps));
}

// The feed-forward's inner width. An LFM2's file has the width before it is cut to two thirds and
// rounded up.
Result<int64_t> HfConfigReader::read_d_ff() const {
  if (family_.gemma3n) return first_width();
  // Where all layers have experts there is no other feed-forward.
  if (family_.experts == HfExperts::qwen3_5 && !root_.get("intermediate_size")) {
    return integer_or("moe_intermediate_size", 512, 1, kMaxWidth);
  }
  if (!family_.convolves) {
    const bool shared = family_.granite4 && experts_ == HfExperts::none;
    return integer(shared ? "shared_intermediate_size" : "intermediate_size", kMaxWidth);
  }
  BLEND_ASSIGN(int64_t ff, integer(root_.get("block_ff_dim") ? "block_ff_dim" : "intermediate_size",
                                   kMaxWidth));
  BLEND_ASSIGN(const bool adjusts,
               root_.boolean_or("block_auto_adjust_ff_dim", family_.experts == HfExperts::none));
  if (!adjusts) return ff;
  if (is_null("block_ffn_dim_multiplier")) return std::max<int64_t>(1, 2 * ff / 3);
  BLEND_ASSIGN(const int64_t multiple, integer_or("block_multiple_of", 256, 1, kMaxWidth));
  double factor = 1;
  if (const std::optional<JsonView> given = root_.get("block_ffn_dim_multiplier")) {
    BLEND_ASSIGN(factor, given->number());
    if (!(factor > 0 && factor <= 1024)) {
      return given->error(BLEND_E_FORMAT, "it must be a number above 0 and at most 1024");
    }
  }
  const int64_t two_thirds = 2 * ff / 3;
  ff = static_cast<int64_t>(factor * static_cast<double>(two_thirds));
  ff = (ff + multiple - 1) / multiple * multiple;
  if (ff >= 1 && ff <= kMaxWidth) return ff;
  return make_error(BLEND_E_FORMAT, "block_ff_dim gives a feed-forward of %lld elements",
                    static_cast<long long>(ff));
}

// Which tensors there are besides a plain Llama's, and the operations between them.
Status HfConfigReader::read_tensors() {
  const bool old_name = family_.convolves && root_.get("tie_embedding");
  BLEND_ASSIGN(out_.tied,
               root_.boolean_or(old_name ? "tie_embedding" : "tie_word_embeddings", family_.tied));
  out_.fused = family_.fused;
  out_.lfm2 = family_.convolves;
  out_.falcon_h1 = family_.falcon_h1;
  out_.shared_mlp = family_.granite4 && experts_ == HfExperts::none;
  out_.layer_norms = family_.qk_norm == QkNorm::after_rope;
  BLEND_RETURN_IF_ERROR(read_biases());
  c_.qk_norm = family_.qk_norm;
  if (family_.qk_norm_asked) {
    BLEND_ASSIGN(const bool asked, root_.boolean_or("use_qk_norm", false));
    if (!asked) c_.qk_norm = QkNorm::none;
  }
  c_.post_norms = family_.gemma || family_.post_only;
  c_.pre_norms = !family_.post_only;
  const char* const wanted = family_.gemma ? "gelu_pytorch_tanh" : "silu";
  const char* const member = family_.gemma ? "hidden_activation" : "hidden_act";
  BLEND_ASSIGN(const std::string activation, root_.string_or(member, wanted));
  if (activation != wanted) {
    return make_error(BLEND_E_UNSUPPORTED, "%s is '%.40s'; libblend runs '%s' in such a model",
                      member, activation.c_str(), wanted);
  }
  if (family_.gemma) c_.activation = Activation::gelu_tanh;
  const bool gpt_oss = family_.experts == HfExperts::gpt_oss;
  if (gpt_oss) c_.activation = Activation::clamped_silu;
  c_.attn_sinks = gpt_oss;
  BLEND_ASSIGN(out_.quantization, read_hf_quantization(whole_));
  const bool mxfp4 = out_.quantization.method == HfQuantization::Method::mxfp4;
  if (mxfp4 && !gpt_oss) {
    return make_error(BLEND_E_UNSUPPORTED,
                      "quantization_config: libblend reads mxfp4 in a gpt_oss alone");
  }
  return Status::ok();
}

Status HfConfigReader::read_biases() {
  const char* const of_attention = family_.bias != nullptr ? family_.bias : "attention_bias";
  const char* const of_ffn = family_.bias != nullptr ? family_.bias : "mlp_bias";
  BLEND_ASSIGN(const bool attention, root_.boolean_or(of_attention, family_.attention_bias));
  BLEND_ASSIGN(c_.ffn_bias, root_.boolean_or(of_ffn, false));
  c_.qkv_bias = family_.qkv_bias || attention;
  if (family_.qkv_bias_asked) {
    BLEND_ASSIGN(c_.qkv_bias, root_.boolean_or("qkv_bias", true));
  }
  c_.attn_out_bias = attention && !family_.qkv_bias;
  if (family_.out_bias_apart) {
    BLEND_ASSIGN(c_.attn_out_bias, root_.boolean_or("attention_out_bias", false));
  }
  return Status::ok();
}

// Hunyuan's base for long prompts: alpha makes it larger, once and for all.
Result<bool> HfConfigReader::read_alpha(const std::optional<JsonView>& params,
                                        double& theta) const {
  if (family_.qk_norm != QkNorm::after_rope || !params) return false;
  BLEND_ASSIGN(const std::string old_name, params->string_or("type", "default"));
  BLEND_ASSIGN(const std::string type, params->string_or("rope_type", old_name.c_str()));
  const std::optional<JsonView> alpha = params->get("alpha");
  if (type != "dynamic" || !alpha) return false;
  if (const std::optional<JsonView> base = params->get("rope_theta")) {
    BLEND_ASSIGN(theta, base->number());
  }
  BLEND_ASSIGN(const double factor, alpha->number());
  if (!(factor >= 1 && factor <= 1e6 && theta >= 1 && theta <= 1e9) || c_.head_dim < 16) {
    return alpha->error(BLEND_E_FORMAT,
                        "it must be 1 to 1000000, of a base up to 1e9 and heads of at least 16");
  }
  const double head = c_.head_dim;
  theta *= std::pow(factor, head / (head - 2));
  return true;
}

// Q grows with every further length of the context that the model was trained for before YaRN.
Status HfConfigReader::read_growth(const std::optional<JsonView>& params) {
  const bool ministral3 = family_.model_type == "ministral3";
  if ((ministral3 || family_.experts == HfExperts::gpt_oss) && !params) {
    return make_error(BLEND_E_FORMAT, "rope_parameters is missing: its defaults are not known");
  }
  const std::optional<JsonView> beta = params ? params->get("llama_4_scaling_beta") : std::nullopt;
  if (!beta) return Status::ok();
  BLEND_ASSIGN(c_.rope.q_growth, beta->number());
  if (c_.rope.q_growth == 0) return Status::ok();
  if (!ministral3 || c_.rope.rotary_dim != c_.head_dim) {
    return beta->error(BLEND_E_UNSUPPORTED,
                       "libblend runs it in a ministral3 whose heads rotate as a whole");
  }
  if (c_.rope.q_growth < 0 || !std::isfinite(c_.rope.q_growth)) {
    return beta->error(BLEND_E_FORMAT, "it must be a finite number above 0");
  }
  BLEND_ASSIGN(const JsonView original, params->need("original_max_position_embeddings"));
  BLEND_ASSIGN(const int64_t rows, original.integer(1, kMaxContext));
  c_.rope.q_growth_rows = static_cast<uint32_t>(rows);
  return Status::ok();
}

Status HfConfigReader::read_ropes() {
  std::optional<JsonView> params = root_.get("rope_parameters");
  std::optional<JsonView> local;
  if (params && params->get("full_attention")) {  // by layer type
    local = params->get("sliding_attention");
    params = params->get("full_attention");
  } else if (!params) {
    params = root_.get("rope_scaling");
  }
  double theta = family_.theta;
  if (const std::optional<JsonView> beside = root_.get("rope_theta")) {
    BLEND_ASSIGN(theta, beside->number());
    if (theta < 1) return beside->error(BLEND_E_FORMAT, "it must be at least 1");
  }
  BLEND_ASSIGN(const bool grown, read_alpha(params, theta));
  BLEND_ASSIGN(const HfRope main,
               read_hf_rope(root_, grown ? std::nullopt : params, theta, family_.rotating_share,
                            family_.latent ? c_.latent.rope : c_.head_dim, c_.context_length));
  c_.rope = main.rope;
  c_.rope.layout = family_.layout;
  c_.short_context = main.short_context;
  c_.long_rope = main.long_rope;
  c_.long_rope.layout = family_.layout;
  BLEND_RETURN_IF_ERROR(read_growth(params));
  if (family_.latent) return read_latent_rope(params);
  const bool gemma3 = family_.model_type == "gemma3_text" || family_.gemma3n;
  if (!gemma3 && !family_.plain_local) return Status::ok();
  double local_theta = gemma3 ? 10000 : c_.rope.theta;
  if (const std::optional<JsonView> beside = root_.get("rope_local_base_freq")) {
    BLEND_ASSIGN(local_theta, beside->number());
    if (local_theta < 1) return beside->error(BLEND_E_FORMAT, "it must be at least 1");
  }
  if (local) {
    BLEND_ASSIGN(const HfRope windowed,
                 read_hf_rope(root_, local, local_theta, family_.rotating_share, c_.head_dim,
                              c_.context_length));
    if (windowed.short_context != 0) {
      return local->error(BLEND_E_UNSUPPORTED, "LongRoPE of windowed layers is not supported");
    }
    c_.local_rope = windowed.rope;
    return Status::ok();
  }
  c_.local_rope = {};
  c_.local_rope.layout = c_.rope.layout;
  c_.local_rope.rotary_dim = c_.rope.rotary_dim;
  c_.local_rope.theta = local_theta;
  return Status::ok();
}

// `no_rope_layers`: 1 where a layer rotates.
Result<std::vector<bool>> HfConfigReader::rotating() const {
  std::vector<bool> out(c_.n_layers, true);
  if (!family_.nope) return out;
  const std::optional<JsonView> list = root_.get("no_rope_layers");
  if (!list) {
    BLEND_ASSIGN(const int64_t every, integer_or("no_rope_layer_interval", 4, 1, kMaxLayers));
    for (size_t i = 0; i < out.size(); ++i) out[i] = (static_cast<int64_t>(i) + 1) % every != 0;
    return out;
  }
  BLEND_ASSIGN(const Json::Array* const entries, list->array());
  if (entries->size() != out.size()) {
    return make_error(BLEND_E_FORMAT, "no_rope_layers has %zu entries for %zu layers",
                      entries->size(), out.size());
  }
  for (size_t i = 0; i < out.size(); ++i) {
    BLEND_ASSIGN(const int64_t rotates, list->element(i).integer(0, 1));
    out[i] = rotates == 1;
  }
  return out;
}

Result<std::vector<bool>> HfConfigReader::windowed(const std::vector<bool>& rotating) const {
  std::vector<bool> out(c_.n_layers, false);
  if (family_.convolves || family_.delta || family_.granite4 || family_.falcon_h1) return out;
  if (root_.get("layer_types")) return of_type("sliding_attention");
  BLEND_ASSIGN(const int64_t from,
               integer_or("max_window_layers", family_.max_window_layers, 0, kMaxLayers));
  BLEND_ASSIGN(
      const int64_t pattern,
      integer_or("sliding_window_pattern", std::max<int64_t>(family_.pattern, 1), 1, kMaxLayers));
  for (size_t i = 0; i < out.size(); ++i) {
    const auto layer = static_cast<int64_t>(i);
    switch (family_.windows) {
      case Windows::all:
        out[i] = true;
        break;
      case Windows::from_max_layer:
        out[i] = layer >= from;
        break;
      case Windows::without_rope:
        out[i] = !rotating[i];
        break;
      case Windows::first_evens:
        out[i] = layer % 2 == 0 && layer < from;
        break;
      case Windows::alternate:
        out[i] = (layer + 1) % pattern != 0;
        break;
    }
  }
  return out;
}

Status HfConfigReader::read_layers() {
  int64_t window = 0;
  BLEND_ASSIGN(const bool asked, root_.boolean_or("use_sliding_window", !family_.window_asked));
  if (asked && !is_null("sliding_window")) {
    BLEND_ASSIGN(window, integer_or("sliding_window", family_.window, 0, kMaxContext));
  }
  const bool has_window = window != 0;
  if (!family_.gemma4) {  // whose says which tokens do: read_gemma4()
    BLEND_ASSIGN(c_.sees_ahead, root_.boolean_or("use_bidirectional_attention", false));
  }
  if (c_.sees_ahead && family_.model_type != "gemma3_text") {
    return make_error(BLEND_E_UNSUPPORTED,
                      "use_bidirectional_attention is not supported in a '%.*s'",
                      static_cast<int>(family_.model_type.size()), family_.model_type.data());
  }
  // The file's window is of both sides together.
  if (c_.sees_ahead && has_window) window = window / 2 + 1;
  if (window >= c_.context_length) window = 0;  // hides nothing
  BLEND_ASSIGN(const std::vector<bool> rotates, rotating());
  BLEND_ASSIGN(const std::vector<bool> local, windowed(rotates));
  c_.layers.resize(c_.n_layers);
  for (size_t i = 0; i < c_.layers.size(); ++i) {
    LayerAttention& layer = c_.layers[i];
    if (local[i]) layer.window = static_cast<uint32_t>(window);
    if (local[i] && c_.local_rope.rotary_dim != 0) layer.rope = LayerAttention::Rope::local;
    if (!rotates[i] || (family_.full_is_nope && has_window && !local[i])) {
      layer.rope = LayerAttention::Rope::none;
    }
  }
  // A model whose layers are all plain has no list.
  const auto plain = [](const LayerAttention& layer) { return layer == LayerAttention{}; };
  if (std::all_of(c_.layers.begin(), c_.layers.end(), plain)) c_.layers.clear();
  return Status::ok();
}

Status HfConfigReader::read_granite() {
  BLEND_ASSIGN(c_.embedding_scale, positive_or("embedding_multiplier", 1));
  BLEND_ASSIGN(const float results, positive_or("residual_multiplier", 1));
  c_.result_scales = {results, results, results};
  BLEND_ASSIGN(c_.attn_scale, positive_or("attention_multiplier", 1));
  BLEND_ASSIGN(const float logits, positive_or("logits_scaling", 1));
  c_.logit_scale = 1 / logits;
  return family_.granite4 ? read_granite4() : Status::ok();
}

// A Granite 4 has a shared feed-forward, and experts beside it or none.
Status HfConfigReader::find_granite4_experts() {
  BLEND_ASSIGN(const int64_t experts, integer_or("num_local_experts", 8, 0, kMaxExperts));
  if (experts != 0) experts_ = HfExperts::granite;
  return Status::ok();
}

Status HfConfigReader::read_granite4() {
  BLEND_ASSIGN(const std::string position, root_.string_or("position_embedding_type", "nope"));
  if (position != "rope") {
    c_.layers.assign(c_.n_layers, {.window = 0, .rope = LayerAttention::Rope::none});
  }
  return Status::ok();
}

namespace {

// The language model of one that sees or hears too; what it has for that is left out.
Result<HfConfig> read_text(const JsonView& whole, const char* usual) {
  BLEND_ASSIGN(const JsonView text, whole.need("text_config"));
  BLEND_ASSIGN(const std::string name, text.string_or("model_type", usual));
  for (const HfFamily& f : hf_families()) {
    if (name != usual || f.model_type != name) continue;
    BLEND_ASSIGN(HfConfig out, HfConfigReader(text, whole, f).read());
    BLEND_ASSIGN(out.tied, whole.boolean_or("tie_word_embeddings", out.tied));
    out.towers = true;
    return out;
  }
  return make_error(BLEND_E_UNSUPPORTED, "text_config.model_type '%.40s' is not supported",
                    name.c_str());
}

}  // namespace

Result<HfConfig> read_hf_config(const JsonView& root) {
  BLEND_ASSIGN(const JsonView type, root.need("model_type"));
  BLEND_ASSIGN(const std::string name, type.string());
  std::string known;
  if (name == "gemma3n") return read_text(root, "gemma3n_text");
  if (name == "gemma4") return read_text(root, "gemma4_text");
  if (name == "nemotron_h") return read_hf_nemotron(root);
  if (name == "qwen3_5") return read_text(root, "qwen3_5_text");
  if (name == "qwen3_5_moe") return read_text(root, "qwen3_5_moe_text");
  for (const HfFamily& f : hf_families()) {
    if (name == f.model_type) return HfConfigReader(root, root, f).read();
    known += (known.empty() ? "" : ", ") + std::string(f.model_type);
  }
  const char* const hint = root.get("text_config")
                               ? "; a model of more than text ('text_config') may be had as a GGUF "
                                 "file of its language model alone"
                               : "";
  return make_error(BLEND_E_UNSUPPORTED, "model_type '%.40s' is not supported; libblend runs %s%s",
                    name.c_str(), known.c_str(), hint);
}

}  // namespace blend
