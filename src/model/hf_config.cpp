#include "model/hf_config.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "model/hf_experts.h"
#include "model/limits.h"

namespace blend {
namespace {

// Which layers see a window where `layer_types` does not say.
enum class Windows : uint8_t {
  all,             // every layer, where there is a window at all
  from_max_layer,  // those from `max_window_layers` on
  without_rope,    // those that do not rotate
  alternate,       // all but each `sliding_window_pattern`-th
};

// Properties of a `model_type` that its members do not state, as transformers runs it.
struct HfFamily {
  std::string_view model_type;
  bool tied = false;  // where the file does not say
  double theta = 10000;
  int64_t head_dim = 0;  // where the file does not say; 0: hidden_size / heads
  double eps = 1e-6;
  Windows windows = Windows::all;
  int64_t window = 0;         // where the file does not say; 0: none
  bool window_asked = false;  // only with use_sliding_window
  int64_t pattern = 0;        // of Windows::alternate
  bool qkv_bias = false;      // always; else as attention_bias says
  QkNorm qk_norm = QkNorm::none;
  bool qk_norm_asked = false;  // only with use_qk_norm
  double rotating_share = 1;   // of a head, where the file does not say
  bool nope = false;
  bool fused = false;
  bool gemma = false;
  bool granite = false;       // scales of embedding, scores, results and logits
  bool granite4 = false;      // a Granite whose layers might be of other kinds
  bool post_only = false;     // results are normalised, and nothing else
  bool full_is_nope = false;  // with a window: layers without it do not rotate
  bool plain_local = false;   // with a window: scaling is for layers without it
  RopeLayout layout = RopeLayout::half_split;
  const char* bias = nullptr;   // the member that says whether there are biases everywhere
  bool attention_bias = false;  // where the file does not say
  bool out_bias_apart = false;  // attention_out_bias says whether the output has one
  HfExperts experts = HfExperts::none;
  bool convolves = false;  // layers of the type "conv" do; names of its own (LFM2)
};
constexpr HfFamily kHfFamilies[] = {
    {.model_type = "llama"},
    {.model_type = "mistral", .window = 4096},
    {.model_type = "qwen2",
     .windows = Windows::from_max_layer,
     .window = 4096,
     .window_asked = true,
     .qkv_bias = true},
    {.model_type = "qwen3",
     .head_dim = 128,
     .windows = Windows::from_max_layer,
     .window = 4096,
     .window_asked = true,
     .qk_norm = QkNorm::heads},
    {.model_type = "smollm3",
     .tied = true,
     .theta = 2000000,
     .windows = Windows::without_rope,
     .window_asked = true,
     .nope = true},
    {.model_type = "phi3", .eps = 1e-5, .fused = true},
    {.model_type = "gemma2",
     .tied = true,
     .head_dim = 256,
     .windows = Windows::alternate,
     .window = 4096,
     .pattern = 2,
     .gemma = true},
    {.model_type = "gemma3_text",
     .tied = true,
     .theta = 1000000,
     .head_dim = 256,
     .windows = Windows::alternate,
     .window = 4096,
     .pattern = 6,
     .qk_norm = QkNorm::heads,
     .gemma = true},
    {.model_type = "granite", .granite = true},
    {.model_type = "granitemoehybrid", .granite = true, .granite4 = true},
    {.model_type = "seed_oss", .head_dim = 128, .attention_bias = true, .out_bias_apart = true},
    {.model_type = "ernie4_5",
     .tied = true,
     .theta = 500000,
     .head_dim = 128,
     .eps = 1e-5,
     .layout = RopeLayout::interleaved,
     .bias = "use_bias"},
    {.model_type = "exaone4",
     .eps = 1e-5,
     .windows = Windows::alternate,
     .window = 4096,
     .pattern = 4,
     .qk_norm = QkNorm::heads,
     .post_only = true,
     .full_is_nope = true},
    {.model_type = "olmo2", .eps = 1e-5, .qk_norm = QkNorm::whole, .post_only = true},
    {.model_type = "olmo3",
     .theta = 500000,
     .eps = 1e-5,
     .windows = Windows::alternate,
     .window = 4096,
     .pattern = 4,
     .qk_norm = QkNorm::whole,
     .post_only = true,
     .plain_local = true},
    {.model_type = "ministral3", .theta = 1000000, .head_dim = 128, .eps = 1e-5},
    {.model_type = "hunyuan_v1_dense", .eps = 1e-5, .qk_norm = QkNorm::after_rope},
    {.model_type = "qwen3_moe",
     .window = 4096,
     .window_asked = true,
     .qk_norm = QkNorm::heads,
     .experts = HfExperts::qwen},
    {.model_type = "olmoe", .eps = 1e-5, .qk_norm = QkNorm::whole, .experts = HfExperts::olmoe},
    {.model_type = "mixtral", .theta = 1000000, .eps = 1e-5, .experts = HfExperts::mixtral},
    {.model_type = "gpt_oss",
     .theta = 150000,
     .head_dim = 64,
     .eps = 1e-5,
     .windows = Windows::alternate,
     .window = 128,
     .pattern = 2,
     .attention_bias = true,
     .experts = HfExperts::gpt_oss},
    {.model_type = "glm4_moe",
     .eps = 1e-5,
     .qk_norm = QkNorm::heads,
     .qk_norm_asked = true,
     .rotating_share = 0.5,
     .out_bias_apart = true,
     .experts = HfExperts::deepseek},
    {.model_type = "dots1",
     .windows = Windows::from_max_layer,
     .window = 4096,
     .qk_norm = QkNorm::heads,
     .experts = HfExperts::deepseek},
    {.model_type = "granitemoe", .granite = true, .experts = HfExperts::granite},
    {.model_type = "granitemoeshared", .granite = true, .experts = HfExperts::granite},
    {.model_type = "ernie4_5_moe",
     .tied = true,
     .theta = 500000,
     .eps = 1e-5,
     .layout = RopeLayout::interleaved,
     .bias = "use_bias",
     .experts = HfExperts::ernie},
    {.model_type = "lfm2",
     .tied = true,
     .theta = 1000000,
     .eps = 1e-5,
     .qk_norm = QkNorm::heads,
     .convolves = true},
    {.model_type = "lfm2_moe",
     .tied = true,
     .theta = 1000000,
     .eps = 1e-5,
     .qk_norm = QkNorm::heads,
     .experts = HfExperts::lfm2,
     .convolves = true},
};

// Reads one file. Used by one call.
class HfConfigReader {
 public:
  HfConfigReader(const JsonView& root, const HfFamily& family) : root_(root), family_(family) {}

  Result<HfConfig> read();

 private:
  Result<int64_t> integer(const char* name, int64_t max) const {
    BLEND_ASSIGN(const JsonView value, root_.need(name));
    return value.integer(1, max);
  }
  Result<int64_t> integer_or(const char* name, int64_t otherwise, int64_t min, int64_t max) const {
    const std::optional<JsonView> value = root_.get(name);
    return value ? value->integer(min, max) : Result<int64_t>(otherwise);
  }
  Result<float> positive_or(const char* name, double otherwise) const;
  bool is_null(const char* name) const {
    const Json* const value = root_.value().find(name);
    return value != nullptr && value->is_null();
  }

  Status read_shape();
  Result<int64_t> read_d_ff() const;
  Status read_conv();
  Status read_tensors();
  Status read_biases();
  Status read_ropes();
  Result<bool> read_alpha(const std::optional<JsonView>& params, double& theta) const;
  Status read_growth(const std::optional<JsonView>& params);
  Status read_layers();
  Result<std::vector<bool>> rotating() const;
  Result<std::vector<bool>> windowed(const std::vector<bool>& rotating) const;
  Status read_gemma();
  Status read_granite();
  Status read_granite4();

  const JsonView& root_;
  const HfFamily& family_;
  HfConfig out_;
  ModelConfig& c_ = out_.model;
};

Result<float> HfConfigReader::positive_or(const char* name, double otherwise) const {
  const std::optional<JsonView> value = root_.get(name);
  if (!value) return static_cast<float>(otherwise);
  BLEND_ASSIGN(const double number, value->number());
  const auto narrow = static_cast<float>(number);
  if (narrow > 0 && std::isfinite(narrow)) return narrow;
  return value->error(BLEND_E_FORMAT, "it must be a finite number above 0");
}

Result<HfConfig> HfConfigReader::read() {
  c_.architecture = family_.model_type;
  BLEND_RETURN_IF_ERROR(read_shape());
  BLEND_RETURN_IF_ERROR(read_conv());
  BLEND_RETURN_IF_ERROR(read_tensors());
  BLEND_RETURN_IF_ERROR(read_ropes());
  BLEND_RETURN_IF_ERROR(read_layers());
  if (family_.gemma) BLEND_RETURN_IF_ERROR(read_gemma());
  if (family_.granite) BLEND_RETURN_IF_ERROR(read_granite());
  BLEND_ASSIGN(c_.experts, read_hf_experts(root_, family_.experts, c_));
  out_.granite_shared = family_.experts == HfExperts::granite;
  BLEND_ASSIGN(const int64_t ahead, integer_or("num_nextn_predict_layers", 0, 0, kMaxLayers));
  out_.layers_ahead = static_cast<uint32_t>(ahead);
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
  if (!root_.get("head_dim") && family_.head_dim == 0 && width % heads != 0) {
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
  if (!family_.convolves) {
    return integer(family_.granite4 ? "shared_intermediate_size" : "intermediate_size", kMaxWidth);
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

// Which layers convolve.
Status HfConfigReader::read_conv() {
  if (!family_.convolves) return Status::ok();
  BLEND_ASSIGN(const bool bias, root_.boolean_or("conv_bias", false));
  if (bias) return {BLEND_E_UNSUPPORTED, "conv_bias: libblend convolves without biases"};
  std::vector<bool> convolves(c_.n_layers, false);
  if (const std::optional<JsonView> list = root_.get("layer_types")) {
    BLEND_ASSIGN(const Json::Array* const entries, list->array());
    if (entries->size() != convolves.size()) {
      return make_error(BLEND_E_FORMAT, "layer_types has %zu entries for %zu layers",
                        entries->size(), convolves.size());
    }
    for (size_t i = 0; i < convolves.size(); ++i) {
      BLEND_ASSIGN(const std::string type, list->element(i).string());
      convolves[i] = type == "conv";
      if (convolves[i] || type == "full_attention") continue;
      return make_error(BLEND_E_UNSUPPORTED, "layer_types[%zu]: '%.40s' is not supported", i,
                        type.c_str());
    }
  } else if (const std::optional<JsonView> attending = root_.get("full_attn_idxs")) {
    BLEND_ASSIGN(const Json::Array* const entries, attending->array());
    convolves.assign(c_.n_layers, true);
    for (size_t i = 0; i < entries->size(); ++i) {
      BLEND_ASSIGN(const int64_t layer, attending->element(i).integer(0, c_.n_layers - 1));
      convolves[static_cast<size_t>(layer)] = false;
    }
  }
  const auto n = std::count(convolves.begin(), convolves.end(), true);
  if (n == 0) return Status::ok();
  if (n == static_cast<int64_t>(c_.n_layers)) {
    return {BLEND_E_UNSUPPORTED, "layer_types: a model in which no layer attends"};
  }
  if (c_.d_model % 2 != 0) {
    return make_error(BLEND_E_UNSUPPORTED,
                      "hidden_size is %u, an odd number, in a model that convolves", c_.d_model);
  }
  BLEND_ASSIGN(const int64_t taps, integer_or("conv_L_cache", 3, 1, kMaxTaps));
  c_.conv.taps = static_cast<uint32_t>(taps);
  c_.conv.layers = std::move(convolves);
  return Status::ok();
}

// Which tensors there are besides a plain Llama's, and the operations between them.
Status HfConfigReader::read_tensors() {
  const bool old_name = family_.convolves && root_.get("tie_embedding");
  BLEND_ASSIGN(out_.tied,
               root_.boolean_or(old_name ? "tie_embedding" : "tie_word_embeddings", family_.tied));
  out_.fused = family_.fused;
  out_.lfm2 = family_.convolves;
  out_.shared_mlp = family_.granite4;
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
  BLEND_ASSIGN(out_.quantization, read_hf_quantization(root_));
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
                            c_.head_dim, c_.context_length));
  c_.rope = main.rope;
  c_.rope.layout = family_.layout;
  c_.short_context = main.short_context;
  c_.long_rope = main.long_rope;
  c_.long_rope.layout = family_.layout;
  BLEND_RETURN_IF_ERROR(read_growth(params));
  const bool gemma3 = family_.model_type == "gemma3_text";
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
  if (family_.convolves) return out;
  const char* const name = root_.get("layer_types") ? "layer_types" : "layers_block_type";
  if (const std::optional<JsonView> list = root_.get(name)) {
    BLEND_ASSIGN(const Json::Array* const entries, list->array());
    if (entries->size() != out.size()) {
      return make_error(BLEND_E_FORMAT, "layer_types has %zu entries for %zu layers",
                        entries->size(), out.size());
    }
    for (size_t i = 0; i < out.size(); ++i) {
      BLEND_ASSIGN(const std::string type, list->element(i).string());
      out[i] = type == "sliding_attention";
      const bool attention = type == "full_attention" || (family_.granite4 && type == "attention");
      if (!out[i] && !attention) {
        return make_error(BLEND_E_UNSUPPORTED, "layer_types[%zu]: '%.40s' is not supported", i,
                          type.c_str());
      }
    }
    return out;
  }
  const int64_t usual = family_.experts == HfExperts::deepseek ? 62 : 28;
  BLEND_ASSIGN(const int64_t from, integer_or("max_window_layers", usual, 0, kMaxLayers));
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

Status HfConfigReader::read_gemma() {
  const bool second = family_.model_type == "gemma2";
  BLEND_ASSIGN(const bool both_ways, root_.boolean_or("use_bidirectional_attention", false));
  if (both_ways) {
    return make_error(BLEND_E_UNSUPPORTED, "use_bidirectional_attention is not supported");
  }
  BLEND_ASSIGN(const float scalar, positive_or("query_pre_attn_scalar", 256));
  c_.attn_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(scalar)));
  c_.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(c_.d_model)));
  c_.norm_offset = 1;
  if (!is_null("attn_logit_softcapping")) {
    BLEND_ASSIGN(c_.attn_softcap, positive_or("attn_logit_softcapping", second ? 50 : 0));
  }
  if (!is_null("final_logit_softcapping")) {
    BLEND_ASSIGN(c_.logit_softcap, positive_or("final_logit_softcapping", second ? 30 : 0));
  }
  return Status::ok();
}

Status HfConfigReader::read_granite() {
  BLEND_ASSIGN(c_.embedding_scale, positive_or("embedding_multiplier", 1));
  BLEND_ASSIGN(c_.residual_scale, positive_or("residual_multiplier", 1));
  BLEND_ASSIGN(c_.attn_scale, positive_or("attention_multiplier", 1));
  BLEND_ASSIGN(const float logits, positive_or("logits_scaling", 1));
  c_.logit_scale = 1 / logits;
  return family_.granite4 ? read_granite4() : Status::ok();
}

// A Granite 4 that is dense: a feed-forward beside no experts, and attention in every layer.
Status HfConfigReader::read_granite4() {
  BLEND_ASSIGN(const int64_t experts, integer_or("num_local_experts", 8, 0, kMaxWidth));
  if (experts != 0) {
    return make_error(BLEND_E_UNSUPPORTED,
                      "num_local_experts is %lld: a mixture of experts is not supported",
                      static_cast<long long>(experts));
  }
  if (!root_.get("layer_types") && !root_.get("layers_block_type")) {
    return make_error(BLEND_E_UNSUPPORTED, "without layer_types no layer is of attention");
  }
  BLEND_ASSIGN(const std::string position, root_.string_or("position_embedding_type", "nope"));
  if (position != "rope") {
    c_.layers.assign(c_.n_layers, {.window = 0, .rope = LayerAttention::Rope::none});
  }
  return Status::ok();
}

}  // namespace

Result<HfConfig> read_hf_config(const JsonView& root) {
  BLEND_ASSIGN(const JsonView type, root.need("model_type"));
  BLEND_ASSIGN(const std::string name, type.string());
  std::string known;
  for (const HfFamily& f : kHfFamilies) {
    if (name == f.model_type) return HfConfigReader(root, f).read();
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
