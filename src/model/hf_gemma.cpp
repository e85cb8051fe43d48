// Gemma's members of a config.json.
#include <algorithm>
#include <cmath>

#include "model/hf_config_reader.h"
#include "model/limits.h"
#include "model/shared_kv.h"

namespace blend {

// What all Gemmas have; softcap: where the file does not say.
Status HfConfigReader::read_gemma_scales(double softcap) {
  c_.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(c_.d_model)));
  if (is_null("final_logit_softcapping")) return Status::ok();
  BLEND_ASSIGN(c_.logit_softcap, positive_or("final_logit_softcapping", softcap));
  return Status::ok();
}

Status HfConfigReader::read_gemma() {
  const bool second = family_.model_type == "gemma2";
  BLEND_ASSIGN(const float scalar, positive_or("query_pre_attn_scalar", 256));
  c_.attn_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(scalar)));
  c_.norm_offset = 1;
  if (!is_null("attn_logit_softcapping")) {
    BLEND_ASSIGN(c_.attn_softcap, positive_or("attn_logit_softcapping", second ? 50 : 0));
  }
  return read_gemma_scales(second ? 30 : 0);
}

// A part of a head rotates in layers without a window, with the frequencies of the whole head. How
// large those heads are is known later.
Status HfConfigReader::read_gemma4_ropes() {
  const std::optional<JsonView> all = root_.get("rope_parameters");
  const std::optional<JsonView> of_global = all ? all->get("full_attention") : std::nullopt;
  const std::optional<JsonView> of_local = all ? all->get("sliding_attention") : std::nullopt;
  if (all && (!of_global || !of_local)) {
    return all->error(BLEND_E_FORMAT, "it must have full_attention and sliding_attention");
  }
  c_.local_rope.theta = 10000;
  c_.local_rope.rotary_dim = c_.head_dim;
  if (of_local) {
    BLEND_ASSIGN(const HfRope local,
                 read_hf_rope(root_, of_local, 10000, 1, c_.head_dim, c_.context_length));
    if (local.short_context != 0) {
      return of_local->error(BLEND_E_UNSUPPORTED, "LongRoPE of windowed layers is not supported");
    }
    c_.local_rope = local.rope;
  }
  c_.local_rope.layout = c_.rope.layout = family_.layout;
  c_.rope.theta = family_.theta;
  rotating_share_ = 0.25;
  if (of_global) {
    BLEND_ASSIGN(const std::string type, of_global->string_or("rope_type", "proportional"));
    if (type != "proportional") {
      return of_global->error(BLEND_E_UNSUPPORTED,
                              "libblend runs RoPE of the type 'proportional' there");
    }
    BLEND_ASSIGN(const JsonView theta, of_global->need("rope_theta"));
    BLEND_ASSIGN(c_.rope.theta, theta.number());
    if (!(c_.rope.theta >= 1 && c_.rope.theta <= 1e15)) {
      return theta.error(BLEND_E_FORMAT, "it must be 1 to 1e15");
    }
    if (const std::optional<JsonView> factor = of_global->get("factor")) {
      BLEND_ASSIGN(c_.rope.linear_scale, factor->number());
      if (!(c_.rope.linear_scale >= 1e-6 && c_.rope.linear_scale <= 1e6)) {
        return factor->error(BLEND_E_FORMAT, "it must be 1e-6 to 1e6");
      }
    }
    rotating_share_ = 1;
    if (const std::optional<JsonView> given = of_global->get("partial_rotary_factor")) {
      BLEND_ASSIGN(rotating_share_, given->number());
      if (!(rotating_share_ >= 0 && rotating_share_ <= 1)) {
        return given->error(BLEND_E_FORMAT, "it must be 0 to 1");
      }
    }
  }
  return Status::ok();
}

// The heads of layers without a window.
Status HfConfigReader::read_gemma4_heads(const std::vector<bool>& local) {
  BLEND_ASSIGN(const bool k_is_v, root_.boolean_or("attention_k_eq_v", false));
  BLEND_ASSIGN(const int64_t global_dim, integer_or("global_head_dim", 512, 1, kMaxHeadDim));
  int64_t kv_heads = c_.n_kv_heads;
  if (k_is_v && !is_null("num_global_key_value_heads")) {
    BLEND_ASSIGN(kv_heads, integer_or("num_global_key_value_heads", kv_heads, 1, kMaxHeads));
  }
  for (uint32_t i = 0; i < c_.n_layers; ++i) {
    int64_t dim = local[i] ? c_.head_dim : global_dim, n = local[i] ? c_.n_kv_heads : kv_heads;
    BLEND_RETURN_IF_ERROR(read_layer_heads(i, dim, n));
    if (c_.n_heads % n != 0) {
      return make_error(BLEND_E_FORMAT,
                        "num_attention_heads is %u, no multiple of the %lld KV heads of layer %u",
                        c_.n_heads, static_cast<long long>(n), i);
    }
    LayerAttention& layer = c_.layers[i];
    if (dim != c_.head_dim) layer.head_dim = static_cast<uint32_t>(dim);
    if (n != c_.n_kv_heads) layer.n_kv_heads = static_cast<uint32_t>(n);
    layer.k_is_v = k_is_v && !local[i];
    if (!local[i]) c_.rope.rotary_dim = static_cast<uint32_t>(dim);
  }
  for (uint32_t i = 0; i < c_.n_layers; ++i) {
    const uint32_t rotary = local[i] ? c_.local_rope.rotary_dim : c_.rope.rotary_dim;
    if (c_.heads(i).dim == rotary && rotary % 2 == 0) continue;
    return make_error(BLEND_E_UNSUPPORTED, "layer %u has heads of %u elements, of which %u rotate",
                      i, c_.heads(i).dim, rotary);
  }
  return share_kv(c_, local);
}

// Transformers 5.24 saves what layers have of their own by layer.
Status HfConfigReader::read_layer_heads(uint32_t layer, int64_t& dim, int64_t& n) const {
  const std::optional<JsonView> all = root_.get("per_layer_config");
  if (!all) return Status::ok();
  dim = c_.head_dim;
  n = c_.n_kv_heads;
  const std::optional<JsonView> own = all->get(std::to_string(layer).c_str());
  if (!own) return Status::ok();
  if (const std::optional<JsonView> given = own->get("head_dim")) {
    BLEND_ASSIGN(dim, given->integer(1, kMaxHeadDim));
  }
  if (const std::optional<JsonView> given = own->get("num_key_value_heads")) {
    BLEND_ASSIGN(n, given->integer(1, kMaxHeads));
  }
  return Status::ok();
}

Status HfConfigReader::read_sharing() {
  const int64_t most = c_.n_layers, usual = family_.gemma3n ? 15 : 0;
  BLEND_ASSIGN(const int64_t sharing, integer_or("num_kv_shared_layers", usual, 0, most));
  if (sharing == most) {
    return {BLEND_E_UNSUPPORTED,
            "num_kv_shared_layers: a model in which no layer has K and V of its own"};
  }
  if (sharing != 0) c_.own_kv = static_cast<uint32_t>(most - sharing);
  return Status::ok();
}

Status HfConfigReader::read_inputs() {
  if (is_null("hidden_size_per_layer_input")) return Status::ok();
  BLEND_ASSIGN(const int64_t inputs,
               integer_or("hidden_size_per_layer_input", 256, 0, kMaxWidth / c_.n_layers));
  c_.input_dim = static_cast<uint32_t>(inputs);
  return Status::ok();
}

Status HfConfigReader::read_gemma4() {
  // Images see both ways; there are none.
  BLEND_ASSIGN(const std::string both, root_.string_or("use_bidirectional_attention", "vision"));
  if (both != "vision") {
    return make_error(BLEND_E_UNSUPPORTED, "use_bidirectional_attention '%.40s' is not supported",
                      both.c_str());
  }
  if (c_.qkv_bias) return {BLEND_E_UNSUPPORTED, "attention_bias is not supported in a gemma4"};
  BLEND_RETURN_IF_ERROR(read_sharing());
  BLEND_ASSIGN(std::vector<bool> local, windowed({}));
  local.back() = false;  // as transformers forces it
  c_.layers.resize(c_.n_layers);
  c_.layers.back() = {};
  BLEND_RETURN_IF_ERROR(read_gemma4_heads(local));
  // The others stand still, as converters to GGUF say it.
  const uint32_t half = c_.rope.rotary_dim / 2;
  c_.rope.freq_factors.assign(half, 1e30f);
  std::fill_n(c_.rope.freq_factors.begin(), static_cast<size_t>(rotating_share_ * half), 1.0f);
  BLEND_ASSIGN(const bool wide, root_.boolean_or("use_double_wide_mlp", false));
  if (wide && c_.own_kv != 0) {
    if (c_.d_ff > kMaxWidth / 2) {
      return {BLEND_E_FORMAT, "use_double_wide_mlp: intermediate_size is too large"};
    }
    c_.d_ffs.assign(c_.n_layers, c_.d_ff);
    std::fill(c_.d_ffs.begin() + c_.own_kv, c_.d_ffs.end(), 2 * c_.d_ff);
  }
  BLEND_RETURN_IF_ERROR(read_inputs());
  if (c_.input_dim != 0) {
    BLEND_ASSIGN(const int64_t vocab,
                 integer_or("vocab_size_per_layer_input", 262144, 1, kMaxVocab));
    if (vocab != c_.n_vocab) {
      return make_error(BLEND_E_UNSUPPORTED,
                        "vocab_size_per_layer_input is %lld, and vocab_size %u: libblend needs "
                        "them equal",
                        static_cast<long long>(vocab), c_.n_vocab);
    }
  }
  c_.layer_scales = true;
  c_.v_norm = true;
  c_.attn_scale = 1;
  return read_gemma_scales(0);
}

}  // namespace blend
