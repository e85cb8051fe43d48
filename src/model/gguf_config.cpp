// Hyperparameters of a GGUF: what each key means, its default and its sane range. RoPE, layers that
// do not attend, latent rows, Gemma 3n and Gemma 4 have files of their own.
#include <algorithm>
#include <cmath>
#include <span>

#include "model/blocks.h"
#include "model/gguf_config_reader.h"
#include "model/gguf_experts.h"
#include "model/limits.h"
#include "model/llama_source.h"
#include "model/rope_scaling.h"
#include "model/tensor_table.h"

namespace blend {
namespace {

// Keys with the architecture's prefix that, if present, mean a computation libblend does not do.
constexpr const char* kScaleKeys[] = {kLogitScale, kEmbeddingScale, kResidualScale};
constexpr const char* kMistral3Keys[] = {kYarnLogMultiplier, kTemperatureScale};
constexpr const char* kUnsupportedKeys[] = {
    "attention.clamp_kqv",
    "attention.max_alibi_bias",
    "attention.sink",
};

}  // namespace

Result<ModelConfig> GgufConfigReader::read() {
  c_.architecture = family_.architecture;
  BLEND_ASSIGN(const std::optional<std::string> name, gguf_.get_string("general.name"));
  c_.name = name.value_or("");
  // The name is handed on as a C string.
  c_.name.resize(std::min(c_.name.size(), c_.name.find('\0')));
  BLEND_RETURN_IF_ERROR(refuse_unsupported());
  BLEND_RETURN_IF_ERROR(read_shape());
  BLEND_RETURN_IF_ERROR(read_attention());
  if (family_.delta) BLEND_RETURN_IF_ERROR(read_delta());
  if (family_.parallel) c_.mixer.kind = RowMixer::Kind::ssm;
  if (c_.mixer.kind == RowMixer::Kind::ssm) BLEND_RETURN_IF_ERROR(read_mamba());
  BLEND_RETURN_IF_ERROR(read_rope());
  BLEND_RETURN_IF_ERROR(read_windows());
  BLEND_RETURN_IF_ERROR(read_family());
  c_.sees_ahead = family_.sees_ahead;
  if (family_.gemma4) BLEND_RETURN_IF_ERROR(read_gemma4());
  if (family_.gemma3n) BLEND_RETURN_IF_ERROR(read_gemma3n());
  if (family_.parallel) pair_layers(c_);
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

// The same where layers may differ.
Result<std::vector<uint32_t>> GgufConfigReader::by_layer(const char* name, uint32_t max) const {
  const std::string full = key(name);
  std::vector<uint32_t> out(c_.n_layers);
  if (!gguf_.is_array(full)) {
    BLEND_ASSIGN(const uint32_t all, required(name, max));
    out.assign(c_.n_layers, all);
    return out;
  }
  BLEND_ASSIGN(const std::optional<std::vector<int32_t>> list, gguf_.get_ints(full));
  const std::vector<int32_t> values = list.value_or(std::vector<int32_t>());
  if (values.size() != out.size()) {
    return make_error(BLEND_E_FORMAT, "key '%s' has %zu entries for %u layers", full.c_str(),
                      values.size(), c_.n_layers);
  }
  for (size_t i = 0; i < out.size(); ++i) {
    BLEND_ASSIGN(out[i], in_range(full, static_cast<uint32_t>(std::max(values[i], 0)), max));
  }
  return out;
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
  if (!family_.mistral3 && !family_.latent) BLEND_RETURN_IF_ERROR(refuse(kMistral3Keys));
  if (family_.latent) BLEND_RETURN_IF_ERROR(refuse({{kTemperatureScale}}));
  BLEND_ASSIGN(const std::optional<uint32_t> experts, gguf_.get_u32(key("expert_count")));
  // A Hunyuan's converter counts the feed-forward of a dense layer as an expert.
  const uint32_t dense = family_.qk_norm == QkNorm::after_rope ? 1 : 0;
  if (!family_.experts.allowed && experts.value_or(0) > dense) {
    return make_error(BLEND_E_UNSUPPORTED,
                      "a mixture of experts ('%s' is %u) is not supported in this architecture",
                      key("expert_count").c_str(), *experts);
  }
  BLEND_ASSIGN(const std::optional<bool> causal, gguf_.get_bool(key("attention.causal")));
  if (!causal.value_or(true) && !family_.sees_ahead) {
    return make_error(BLEND_E_UNSUPPORTED, "attention without a causal mask is not supported");
  }
  return Status::ok();
}

Status GgufConfigReader::read_shape() {
  BLEND_ASSIGN(const uint32_t blocks,
               required("block_count", family_.parallel ? kMaxLayers / 2 : kMaxLayers));
  BLEND_ASSIGN(const uint32_t ahead, gguf_layers_ahead(gguf_, c_.architecture));
  if (ahead >= blocks) {
    return make_error(BLEND_E_FORMAT, "key '%s' is %u of %u layers",
                      key("nextn_predict_layers").c_str(), ahead, blocks);
  }
  // Which tensors those layers have is known by their number, which here is not the file's.
  if (family_.nemotron && ahead != 0) {
    return make_error(BLEND_E_UNSUPPORTED, "key '%s' is %u; of a %s it must be 0",
                      key("nextn_predict_layers").c_str(), ahead, c_.architecture.c_str());
  }
  c_.n_layers = blocks - ahead;
  BLEND_ASSIGN(c_.d_model, required("embedding_length", kMaxWidth));
  if (family_.nemotron) {
    BLEND_RETURN_IF_ERROR(read_blocks());
  } else if (family_.gemma4 || family_.gemma3n) {
    BLEND_ASSIGN(c_.d_ffs, by_layer("feed_forward_length", kMaxWidth));
    c_.d_ff = c_.d_ffs[0];
    if (std::count(c_.d_ffs.begin(), c_.d_ffs.end(), c_.d_ff) == c_.n_layers) c_.d_ffs.clear();
  } else {
    BLEND_ASSIGN(std::optional<uint32_t> d_ff, of_layers("feed_forward_length"));
    // Where all layers have experts there may be no other feed-forward.
    if (!d_ff && family_.experts.shared_weighed) {
      BLEND_ASSIGN(d_ff, of_layers("expert_feed_forward_length"));
    }
    BLEND_ASSIGN(c_.d_ff, needed("feed_forward_length", d_ff, kMaxWidth));
  }
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
  if (family_.latent) return read_latent();
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

// The number of KV heads; the file's list also says where a layer does not attend: 0 heads.
Result<uint32_t> GgufConfigReader::read_kv_heads() {
  constexpr const char* kName = "attention.head_count_kv";
  if (family_.gemma4) {
    BLEND_ASSIGN(const std::vector<uint32_t> heads, by_layer(kName, kMaxHeads));
    return heads[0];
  }
  if (family_.nemotron) return c_.n_kv_heads;
  if (!family_.convolves && !family_.mamba) {
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
  c_.mixer.kind = family_.mamba ? RowMixer::Kind::ssm : RowMixer::Kind::conv;
  c_.mixer.layers.assign(c_.n_layers, false);
  for (size_t i = 0; i < list->size(); ++i) {
    c_.mixer.layers[i] = (*list)[i] == 0;
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
  if (family_.convolves) {
    BLEND_ASSIGN(c_.mixer.taps, required("shortconv.l_cache", kMaxTaps));
    if (c_.d_model % 2 != 0) {
      return make_error(BLEND_E_UNSUPPORTED,
                        "key '%s' is %u, an odd number, in a model that convolves",
                        key("embedding_length").c_str(), c_.d_model);
    }
  }
  if (std::none_of(c_.mixer.layers.begin(), c_.mixer.layers.end(), [](bool is) { return is; })) {
    c_.mixer = {};
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
  uint32_t window = asked;
  if (family_.sees_ahead) window = asked / 2 + 1;  // the file's is of both sides together
  if (window >= c_.context_length) window = 0;
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
  if (family_.nemotron) {
    c_.activation = Activation::relu2;
    c_.layers.assign(c_.n_layers, {.window = 0, .rope = LayerAttention::Rope::none});
  }
  if (family_.parallel && !c_.layers.empty()) {
    return make_error(BLEND_E_UNSUPPORTED, "key '%s': libblend runs a %s without a window",
                      key("attention.sliding_window").c_str(), c_.architecture.c_str());
  }
  if (family_.granite) return read_granite();
  if (!family_.gemma) return Status::ok();
  c_.activation = Activation::gelu_tanh;
  // The file's norm weights already include the 1.
  c_.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(c_.d_model)));
  // The 27B models, recognizable only by their number of layers, scale by a head width that is
  // not theirs.
  const bool third = family_.qk_norm != QkNorm::none;
  const bool scaled = !family_.sees_ahead && !family_.gemma4 && !family_.gemma3n;
  if (scaled && c_.n_layers == (third ? 62u : 46u)) {
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
  float results = 1;
  BLEND_RETURN_IF_ERROR(read(kResidualScale, results));
  c_.result_scales = {results, results, results};
  BLEND_ASSIGN(const double logits, positive_or(kLogitScale, 1));
  c_.logit_scale = static_cast<float>(1 / logits);
  // So the converter spells a model without RoPE.
  BLEND_ASSIGN(const std::optional<bool> rotates, gguf_.get_bool(key("rope.scaling.finetuned")));
  if (!rotates.value_or(true)) {
    c_.layers.assign(c_.n_layers, {.window = 0, .rope = LayerAttention::Rope::none});
  }
  return Status::ok();
}

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
  for (const GgufFamily& f : gguf_families()) {
    if (*architecture == f.architecture) return GgufConfigReader(gguf, f).read();
    known += std::string(known.empty() ? "'" : ", '") + f.architecture + "'";
  }
  return make_error(BLEND_E_UNSUPPORTED, "architecture '%.40s' is not supported; libblend runs %s",
                    architecture->c_str(), known.c_str());
}

}  // namespace blend
