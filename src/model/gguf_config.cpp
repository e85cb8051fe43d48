// Hyperparameters of a GGUF: what each key means, its default and its sane range, and what a family
// of models (`general.architecture`) adds to them.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include "model/gguf_experts.h"
#include "model/limits.h"
#include "model/llama_source.h"
#include "model/rope_scaling.h"
#include "model/tensor_table.h"

namespace blend {
namespace {

// Properties of an architecture that its keys do not state, as llama.cpp reads the same files.
struct GgufFamily {
  const char* architecture;
  RopeLayout layout = RopeLayout::half_split;
  bool qkv_bias = false;          // always; a llama has biases where the file does
  bool qk_norm_optional = false;  // qk_norm where the file has its weights, else none
  QkNorm qk_norm = QkNorm::none;
  uint32_t nope_every = 0;    // layers n - 1, 2n - 1, ... do not rotate
  uint32_t global_every = 0;  // with a window: layers n - 1, 2n - 1, ... have none; 0: all have it
  bool gemma = false;
  // Default where the file has none (the first files of a Gemma 2 do not).
  uint32_t window = 0;
  double attn_softcap = 0;
  double logit_softcap = 0;
  bool granite = false;       // scales of embedding, results and logits
  bool post_only = false;     // results are normalised, and nothing else
  bool full_is_nope = false;  // with a window: layers without it do not rotate
  bool plain_local = false;   // with a window: scaling is for layers without it
  bool mistral3 = false;      // YaRN's second factor, and Q that grows with its position
  GgufExperts experts = {};
  bool gpt_oss = false;    // sinks, a clamped SwiGLU, a ramp of YaRN with ends that are not rounded
  bool convolves = false;  // layers without KV heads convolve
};
constexpr GgufFamily kGgufFamilies[] = {
    {.architecture = "llama",
     .layout = RopeLayout::interleaved,
     .experts = {.allowed = true, .normalised = true}},
    {.architecture = "qwen2", .qkv_bias = true},
    {.architecture = "qwen3", .qk_norm = QkNorm::heads},
    {.architecture = "smollm3", .layout = RopeLayout::interleaved, .nope_every = 4},
    {.architecture = "phi3"},
    {.architecture = "gemma2",
     .global_every = 2,
     .gemma = true,
     .window = 4096,
     .attn_softcap = 50,
     .logit_softcap = 30},
    {.architecture = "gemma3", .qk_norm = QkNorm::heads, .global_every = 6, .gemma = true},
    {.architecture = "granite", .layout = RopeLayout::interleaved, .granite = true},
    {.architecture = "seed_oss"},
    {.architecture = "ernie4_5", .layout = RopeLayout::interleaved},
    {.architecture = "exaone4",
     .qk_norm = QkNorm::heads,
     .global_every = 4,
     .post_only = true,
     .full_is_nope = true},
    {.architecture = "olmo2",
     .qk_norm = QkNorm::whole,
     .global_every = 4,
     .post_only = true,
     .plain_local = true},
    {.architecture = "mistral3", .layout = RopeLayout::interleaved, .mistral3 = true},
    {.architecture = "hunyuan-dense", .qk_norm = QkNorm::after_rope},
    {.architecture = "qwen3moe",
     .qk_norm = QkNorm::heads,
     .experts = {.allowed = true, .required = true, .normalised = true}},
    {.architecture = "olmoe",
     .qk_norm = QkNorm::whole,
     .experts = {.allowed = true, .required = true}},
    {.architecture = "granitemoe",
     .layout = RopeLayout::interleaved,
     .granite = true,
     .experts = {.allowed = true, .required = true, .normalised = true}},
    {.architecture = "ernie4_5-moe",
     .layout = RopeLayout::interleaved,
     .experts = {.allowed = true, .required = true, .normalised = true}},
    {.architecture = "glm4moe",
     .qk_norm_optional = true,
     .qk_norm = QkNorm::heads,
     .experts = {.allowed = true, .required = true, .normalised = true, .sigmoid = true}},
    {.architecture = "dots1",
     .qk_norm = QkNorm::heads,
     .experts = {.allowed = true, .required = true, .sigmoid = true}},
    {.architecture = "gpt-oss",
     .global_every = 2,
     .window = 128,
     .experts = {.allowed = true, .required = true, .normalised = true},
     .gpt_oss = true},
    {.architecture = "lfm2", .qk_norm = QkNorm::heads, .convolves = true},
    {.architecture = "lfm2moe",
     .qk_norm = QkNorm::heads,
     .experts = {.allowed = true, .required = true, .normalised = true, .sigmoid = true},
     .convolves = true},
};

// Granite's scales.
constexpr const char* kLogitScale = "logit_scale";
constexpr const char* kEmbeddingScale = "embedding_scale";
constexpr const char* kResidualScale = "residual_scale";
// Mistral 3's.
constexpr const char* kYarnLogMultiplier = "rope.scaling.yarn_log_multiplier";
constexpr const char* kTemperatureScale = "attention.temperature_scale";

// Keys with the architecture's prefix that, if present, mean a computation libblend does not do.
constexpr const char* kScaleKeys[] = {kLogitScale, kEmbeddingScale, kResidualScale};
constexpr const char* kMistral3Keys[] = {kYarnLogMultiplier, kTemperatureScale};
constexpr const char* kUnsupportedKeys[] = {
    "attention.clamp_kqv",
    "attention.max_alibi_bias",
    "attention.sink",
};

// Reads one file's keys; those of the architecture are named without it. Used by one call.
class GgufConfigReader {
 public:
  GgufConfigReader(const GgufReader& gguf, const GgufFamily& family)
      : gguf_(gguf), family_(family) {}

  Result<ModelConfig> read();

 private:
  std::string key(const char* name) const { return std::string(family_.architecture) + "." + name; }
  static Result<uint32_t> in_range(const std::string& key, uint32_t value, uint32_t max) {
    if (value >= 1 && value <= max) return value;
    return make_error(BLEND_E_FORMAT, "key '%s' is %u; 1 to %u make sense", key.c_str(), value,
                      max);
  }
  Result<uint32_t> required(const char* name, uint32_t max) const {
    BLEND_ASSIGN(const std::optional<uint32_t> value, gguf_.get_u32(key(name)));
    return needed(name, value, max);
  }
  Result<uint32_t> needed(const char* name, const std::optional<uint32_t>& value,
                          uint32_t max) const {
    if (!value) return make_error(BLEND_E_FORMAT, "key '%s' is missing", key(name).c_str());
    return in_range(key(name), *value, max);
  }
  Result<uint32_t> with_default(const char* name, uint32_t otherwise, uint32_t max) const {
    BLEND_ASSIGN(const std::optional<uint32_t> value, gguf_.get_u32(key(name)));
    return in_range(key(name), value.value_or(otherwise), max);
  }
  static Result<double> positive(const std::string& key, double value) {
    if (std::isfinite(value) && value > 0) return value;
    return make_error(BLEND_E_FORMAT, "key '%s' is %g; it must be a finite number above 0",
                      key.c_str(), value);
  }
  Result<double> positive_or(const char* name, double otherwise) const {
    BLEND_ASSIGN(const std::optional<double> value, gguf_.get_float(key(name)));
    return positive(key(name), value.value_or(otherwise));
  }
  Result<std::optional<uint32_t>> of_layers(const char* name) const;
  bool has_tensor(const char* name) const { return gguf_.tensor(name) != nullptr; }

  Status refuse_unsupported() const;
  Status read_shape();
  Status read_attention();
  Result<uint32_t> read_kv_heads();
  Status read_windows();
  Status read_rope();
  Status read_scaling(const std::string& type);
  Status read_yarn();
  Status read_growth();
  Result<std::vector<float>> read_factors(const char* name) const;
  Status read_longrope();
  Result<std::vector<bool>> windowed() const;
  Status read_family();
  Status read_granite();
  Status read_pooling();

  const GgufReader& gguf_;
  const GgufFamily& family_;
  ModelConfig c_;
};

Result<ModelConfig> GgufConfigReader::read() {
  c_.architecture = family_.architecture;
  BLEND_ASSIGN(const std::optional<std::string> name, gguf_.get_string("general.name"));
  c_.name = name.value_or("");
  // The name is handed on as a C string.
  c_.name.resize(std::min(c_.name.size(), c_.name.find('\0')));
  BLEND_RETURN_IF_ERROR(refuse_unsupported());
  BLEND_RETURN_IF_ERROR(read_shape());
  BLEND_RETURN_IF_ERROR(read_attention());
  BLEND_RETURN_IF_ERROR(read_rope());
  BLEND_RETURN_IF_ERROR(read_windows());
  BLEND_RETURN_IF_ERROR(read_family());
  BLEND_RETURN_IF_ERROR(read_pooling());
  if (family_.experts.allowed) {
    BLEND_ASSIGN(c_.experts, read_gguf_experts(gguf_, family_.experts, c_));
  }
  return std::move(c_);
}

// A number that some converters write once for each layer, as llama.cpp reads it too. Layers that
// differ from each other are not supported here.
Result<std::optional<uint32_t>> GgufConfigReader::of_layers(const char* name) const {
  const std::string full = key(name);
  if (!gguf_.is_array(full)) return gguf_.get_u32(full);
  BLEND_ASSIGN(const std::optional<std::vector<int32_t>> list, gguf_.get_ints(full));
  const std::vector<int32_t> values = list.value_or(std::vector<int32_t>());
  if (values.size() != c_.n_layers) {
    return make_error(BLEND_E_FORMAT, "key '%s' has %zu entries for %u layers", full.c_str(),
                      values.size(), c_.n_layers);
  }
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] < 0) {
      return make_error(BLEND_E_FORMAT, "key '%s' is %d in layer %zu; it cannot be below 0",
                        full.c_str(), values[i], i);
    }
    if (values[i] != values[0]) {
      return make_error(BLEND_E_UNSUPPORTED,
                        "key '%s' is %d in layer 0 and %d in layer %zu; libblend runs models whose "
                        "layers are alike",
                        full.c_str(), values[0], values[i], i);
    }
  }
  return std::optional<uint32_t>(static_cast<uint32_t>(values[0]));
}

Status GgufConfigReader::refuse_unsupported() const {
  const auto refuse = [&](std::span<const char* const> names) -> Status {
    for (const char* name : names) {
      if (!gguf_.has(key(name))) continue;
      return make_error(BLEND_E_UNSUPPORTED, "the model asks for '%s', which is not supported",
                        key(name).c_str());
    }
    return Status::ok();
  };
  BLEND_RETURN_IF_ERROR(refuse(kUnsupportedKeys));
  if (!family_.granite) BLEND_RETURN_IF_ERROR(refuse(kScaleKeys));
  if (!family_.mistral3) BLEND_RETURN_IF_ERROR(refuse(kMistral3Keys));
  BLEND_ASSIGN(const std::optional<uint32_t> experts, gguf_.get_u32(key("expert_count")));
  // A Hunyuan's converter counts the feed-forward of a dense layer as an expert.
  const uint32_t dense = family_.qk_norm == QkNorm::after_rope ? 1 : 0;
  if (!family_.experts.allowed && experts.value_or(0) > dense) {
    return make_error(BLEND_E_UNSUPPORTED,
                      "a mixture of experts ('%s' is %u) is not supported in this architecture",
                      key("expert_count").c_str(), *experts);
  }
  BLEND_ASSIGN(const std::optional<bool> causal, gguf_.get_bool(key("attention.causal")));
  if (!causal.value_or(true)) {
    return make_error(BLEND_E_UNSUPPORTED, "attention without a causal mask is not supported");
  }
  return Status::ok();
}

Status GgufConfigReader::read_shape() {
  BLEND_ASSIGN(const uint32_t blocks, required("block_count", kMaxLayers));
  BLEND_ASSIGN(const uint32_t ahead, gguf_layers_ahead(gguf_, c_.architecture));
  if (ahead >= blocks) {
    return make_error(BLEND_E_FORMAT, "key '%s' is %u of %u layers",
                      key("nextn_predict_layers").c_str(), ahead, blocks);
  }
  c_.n_layers = blocks - ahead;
  BLEND_ASSIGN(c_.d_model, required("embedding_length", kMaxWidth));
  BLEND_ASSIGN(const std::optional<uint32_t> d_ff, of_layers("feed_forward_length"));
  BLEND_ASSIGN(c_.d_ff, needed("feed_forward_length", d_ff, kMaxWidth));
  BLEND_ASSIGN(c_.context_length, required("context_length", kMaxContext));
  const std::string eps_key = key("attention.layer_norm_rms_epsilon");
  BLEND_ASSIGN(const std::optional<double> eps, gguf_.get_float(eps_key));
  if (!eps) return make_error(BLEND_E_FORMAT, "key '%s' is missing", eps_key.c_str());
  BLEND_ASSIGN(const double positive_eps, positive(eps_key, *eps));
  c_.rms_eps = static_cast<float>(positive_eps);
  if (c_.rms_eps <= 0 || c_.rms_eps >= 1) {
    return make_error(BLEND_E_FORMAT, "key '%s' is %g; it must be between 0 and 1", eps_key.c_str(),
                      positive_eps);
  }
  return Status::ok();
}

Status GgufConfigReader::read_attention() {
  BLEND_ASSIGN(const std::optional<uint32_t> heads, of_layers("attention.head_count"));
  BLEND_ASSIGN(c_.n_heads, needed("attention.head_count", heads, kMaxHeads));
  BLEND_ASSIGN(c_.n_kv_heads, read_kv_heads());
  if (c_.n_heads % c_.n_kv_heads != 0) {
    return make_error(BLEND_E_FORMAT, "key '%s' is %u, no multiple of the %u of '%s'",
                      key("attention.head_count").c_str(), c_.n_heads, c_.n_kv_heads,
                      key("attention.head_count_kv").c_str());
  }
  if (!gguf_.has(key("attention.key_length")) && c_.d_model % c_.n_heads != 0) {
    return make_error(BLEND_E_FORMAT,
                      "key '%s' is %u, no multiple of the %u of '%s', and '%s' is missing",
                      key("embedding_length").c_str(), c_.d_model, c_.n_heads,
                      key("attention.head_count").c_str(), key("attention.key_length").c_str());
  }
  BLEND_ASSIGN(c_.head_dim,
               with_default("attention.key_length", c_.d_model / c_.n_heads, kMaxHeadDim));
  BLEND_ASSIGN(const uint32_t value_dim,
               with_default("attention.value_length", c_.d_model / c_.n_heads, kMaxHeadDim));
  if (value_dim != c_.head_dim) {
    return make_error(BLEND_E_UNSUPPORTED,
                      "keys of %u elements and values of %u ('%s', 'value_length'): libblend needs "
                      "them equal",
                      c_.head_dim, value_dim, key("attention.key_length").c_str());
  }
  if (gguf_.has(key("attention.scale"))) {
    BLEND_ASSIGN(const double scale, positive_or("attention.scale", 1));
    c_.attn_scale = static_cast<float>(scale);
  }
  const bool normalises = !family_.qk_norm_optional || has_tensor("blk.0.attn_q_norm.weight");
  c_.qk_norm = normalises ? family_.qk_norm : QkNorm::none;
  c_.qkv_bias =
      family_.qkv_bias || has_tensor("blk.0.attn_q.bias") || has_tensor("blk.0.attn_qkv.bias");
  c_.attn_out_bias = has_tensor("blk.0.attn_output.bias");
  c_.ffn_bias = has_tensor("blk.0.ffn_gate.bias");
  c_.attn_sinks = family_.gpt_oss || has_tensor("blk.0.attn_sinks.weight");
  return Status::ok();
}

// The number of KV heads; in a family that convolves, the file's list also says where: 0 heads.
Result<uint32_t> GgufConfigReader::read_kv_heads() {
  constexpr const char* kName = "attention.head_count_kv";
  if (!family_.convolves) {
    BLEND_ASSIGN(const std::optional<uint32_t> heads, of_layers(kName));
    return in_range(key(kName), heads.value_or(c_.n_heads), kMaxHeads);
  }
  BLEND_ASSIGN(const std::optional<std::vector<int32_t>> list, gguf_.get_ints(key(kName)));
  if (!list || list->size() != c_.n_layers) {
    return make_error(BLEND_E_FORMAT,
                      "key '%s' has %zu entries for %u layers: it says which layers attend",
                      key(kName).c_str(), list ? list->size() : 0, c_.n_layers);
  }
  const int32_t heads = *std::max_element(list->begin(), list->end());
  c_.conv.layers.assign(c_.n_layers, false);
  for (size_t i = 0; i < list->size(); ++i) {
    c_.conv.layers[i] = (*list)[i] == 0;
    if ((*list)[i] == 0 || (*list)[i] == heads) continue;
    return make_error(BLEND_E_UNSUPPORTED,
                      "key '%s' is %d in layer %zu and %d in another; libblend runs models whose "
                      "attending layers are alike",
                      key(kName).c_str(), (*list)[i], i, heads);
  }
  if (heads <= 0) {
    return make_error(BLEND_E_UNSUPPORTED, "key '%s': a model in which no layer attends",
                      key(kName).c_str());
  }
  BLEND_ASSIGN(c_.conv.taps, required("shortconv.l_cache", kMaxTaps));
  if (c_.d_model % 2 != 0) {
    return make_error(BLEND_E_UNSUPPORTED,
                      "key '%s' is %u, an odd number, in a model that convolves",
                      key("embedding_length").c_str(), c_.d_model);
  }
  if (std::none_of(c_.conv.layers.begin(), c_.conv.layers.end(), [](bool is) { return is; })) {
    c_.conv = {};
  }
  return in_range(key(kName), static_cast<uint32_t>(heads), kMaxHeads);
}

// Which layers have the window: from the file's list, its period, or the family's.
Result<std::vector<bool>> GgufConfigReader::windowed() const {
  std::vector<bool> out(c_.n_layers);
  const std::string name = key("attention.sliding_window_pattern");
  if (gguf_.is_array(name)) {
    BLEND_ASSIGN(const std::optional<std::vector<int32_t>> flags, gguf_.get_ints(name));
    const std::vector<int32_t> list = flags.value_or(std::vector<int32_t>());
    if (list.size() != out.size()) {
      return make_error(BLEND_E_FORMAT, "key '%s' has %zu entries for %u layers", name.c_str(),
                        list.size(), c_.n_layers);
    }
    for (size_t i = 0; i < out.size(); ++i) out[i] = list[i] != 0;
    return out;
  }
  BLEND_ASSIGN(const std::optional<uint32_t> given, gguf_.get_u32(name));
  const uint32_t every = given.value_or(family_.global_every);
  for (uint32_t i = 0; i < c_.n_layers; ++i) out[i] = every == 0 || (i + 1) % every != 0;
  return out;
}

// Which layers see a window and which do not rotate; a config without such layers has no list.
Status GgufConfigReader::read_windows() {
  BLEND_ASSIGN(const std::optional<uint32_t> given, gguf_.get_u32(key("attention.sliding_window")));
  const uint32_t asked = given.value_or(family_.window);
  if (asked == 0 && family_.nope_every == 0) return Status::ok();
  // A window as long as the context hides nothing, but its layers still rotate in their own way.
  const uint32_t window = asked < c_.context_length ? asked : 0;
  if (window == 0 && c_.local_rope.rotary_dim == 0 && family_.nope_every == 0 &&
      !family_.full_is_nope) {
    return Status::ok();
  }
  BLEND_ASSIGN(const std::vector<bool> local, windowed());
  c_.layers.resize(c_.n_layers);
  for (uint32_t i = 0; i < c_.n_layers; ++i) {
    LayerAttention& layer = c_.layers[i];
    if (asked != 0 && local[i]) {
      layer.window = window;
      if (c_.local_rope.rotary_dim != 0) layer.rope = LayerAttention::Rope::local;
    } else if (asked != 0 && family_.full_is_nope) {
      layer.rope = LayerAttention::Rope::none;
    }
    if (family_.nope_every != 0 && (i + 1) % family_.nope_every == 0) {
      layer.rope = LayerAttention::Rope::none;
    }
  }
  return Status::ok();
}

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
  BLEND_ASSIGN(r.theta, positive_or("rope.freq_base", 10000.0));
  if (r.theta < 1) {
    return make_error(BLEND_E_FORMAT, "key '%s' is %g; it must be at least 1",
                      key("rope.freq_base").c_str(), r.theta);
  }
  if (has_tensor(kRopeFreqs)) {
    BLEND_ASSIGN(r.freq_factors, read_factors(kRopeFreqs));
  }
  const bool gemma3 = std::strcmp(family_.architecture, "gemma3") == 0;
  if (gemma3 || (family_.plain_local && gguf_.has(key("attention.sliding_window")))) {
    c_.local_rope = r;  // before any scaling, which is the global layers' alone
    BLEND_ASSIGN(c_.local_rope.theta,
                 positive_or("rope.freq_base_swa", gemma3 ? 10000.0 : r.theta));
    if (c_.local_rope.theta < 1) {
      return make_error(BLEND_E_FORMAT, "key '%s' is %g; it must be at least 1",
                        key("rope.freq_base_swa").c_str(), c_.local_rope.theta);
    }
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
    usual /= 1 + all * (usual - 1);
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

Status GgufConfigReader::read_family() {
  struct Softcap {
    const char* name;
    double otherwise;
    float* to;
  };
  for (const auto& [name, otherwise, to] :
       {Softcap{"attn_logit_softcapping", family_.attn_softcap, &c_.attn_softcap},
        Softcap{"final_logit_softcapping", family_.logit_softcap, &c_.logit_softcap}}) {
    BLEND_ASSIGN(const std::optional<double> given, gguf_.get_float(key(name)));
    const double cap = given.value_or(otherwise);
    if (cap == 0) continue;
    if (!family_.gemma) {
      return make_error(BLEND_E_UNSUPPORTED, "the model asks for '%s', which is not supported",
                        key(name).c_str());
    }
    BLEND_ASSIGN(const double value, positive(key(name), cap));
    *to = static_cast<float>(value);
  }
  c_.post_norms = family_.gemma || family_.post_only;
  c_.pre_norms = !family_.post_only;
  if (family_.gpt_oss) c_.activation = Activation::clamped_silu;
  if (family_.granite) return read_granite();
  if (!family_.gemma) return Status::ok();
  c_.activation = Activation::gelu_tanh;
  // The file's norm weights already include the 1.
  c_.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(c_.d_model)));
  // The 27B models, recognizable only by their number of layers, scale by a head width that is
  // not theirs.
  const bool third = family_.qk_norm != QkNorm::none;
  if (c_.n_layers == (third ? 62u : 46u)) {
    c_.attn_scale = static_cast<float>(
        1.0 / std::sqrt(static_cast<double>(c_.d_model) / static_cast<double>(c_.n_heads)));
  }
  return Status::ok();
}

// The numbers are llama.cpp's.
Status GgufConfigReader::read_pooling() {
  BLEND_ASSIGN(const std::optional<uint32_t> type, gguf_.get_u32(key("pooling_type")));
  constexpr Pooling kTypes[] = {Pooling::unsaid, Pooling::mean, Pooling::first, Pooling::last};
  const uint32_t given = type.value_or(0);
  c_.pooling = given < std::size(kTypes) ? kTypes[given] : Pooling::other;
  return Status::ok();
}

// Logits are divided by their scale; the others multiply.
Status GgufConfigReader::read_granite() {
  const auto read = [&](const char* name, float& to) -> Status {
    BLEND_ASSIGN(const double value, positive_or(name, 1));
    to = static_cast<float>(value);
    return Status::ok();
  };
  BLEND_RETURN_IF_ERROR(read(kEmbeddingScale, c_.embedding_scale));
  BLEND_RETURN_IF_ERROR(read(kResidualScale, c_.residual_scale));
  BLEND_ASSIGN(const double logits, positive_or(kLogitScale, 1));
  c_.logit_scale = static_cast<float>(1 / logits);
  // So the converter spells a model without RoPE.
  BLEND_ASSIGN(const std::optional<bool> rotates, gguf_.get_bool(key("rope.scaling.finetuned")));
  if (!rotates.value_or(true)) {
    c_.layers.assign(c_.n_layers, {.window = 0, .rope = LayerAttention::Rope::none});
  }
  return Status::ok();
}

}  // namespace

Result<uint32_t> gguf_layers_ahead(const GgufReader& gguf, const std::string& architecture) {
  BLEND_ASSIGN(const std::optional<uint32_t> n,
               gguf.get_u32(architecture + ".nextn_predict_layers"));
  return n.value_or(0);
}

Result<std::vector<float>> read_f32_vector(const GgufReader& gguf, const GgufTensor& t, uint64_t n,
                                           const std::string& belongs_to) {
  if (t.type != kGgmlF32) {
    return make_error(BLEND_E_UNSUPPORTED, "tensor '%s' is %s; libblend reads F32", t.name.c_str(),
                      ggml_type_name(t.type).c_str());
  }
  if (t.dims.size() != 1 || t.dims[0] != n) {
    return make_error(BLEND_E_FORMAT, "tensor '%s' has the shape %s; [%llu] belongs to '%s'",
                      t.name.c_str(), shape_text({t.dims.rbegin(), t.dims.rend()}).c_str(),
                      static_cast<unsigned long long>(n), belongs_to.c_str());
  }
  std::vector<float> values(static_cast<size_t>(n));
  std::memcpy(values.data(), gguf.file().data() + t.offset, values.size() * sizeof(float));
  return values;
}

Result<ModelConfig> read_gguf_config(const GgufReader& gguf) {
  BLEND_ASSIGN(const std::optional<std::string> architecture,
               gguf.get_string("general.architecture"));
  if (!architecture) return make_error(BLEND_E_FORMAT, "key 'general.architecture' is missing");
  std::string known;
  for (const GgufFamily& f : kGgufFamilies) {
    if (*architecture == f.architecture) return GgufConfigReader(gguf, f).read();
    known += std::string(known.empty() ? "'" : ", '") + f.architecture + "'";
  }
  return make_error(BLEND_E_UNSUPPORTED, "architecture '%.40s' is not supported; libblend runs %s",
                    architecture->c_str(), known.c_str());
}

}  // namespace blend
