// Gemma 4's keys of a GGUF, and those that Gemma 3n's has too.
#include <cmath>

#include "model/gguf_config_reader.h"
#include "model/limits.h"
#include "model/shared_kv.h"

namespace blend {

Result<std::vector<bool>> GgufConfigReader::local_layers() const {
  BLEND_ASSIGN(const std::optional<uint32_t> window,
               gguf_.get_u32(key("attention.sliding_window")));
  const bool no_window = window.value_or(0) == 0;
  if (!no_window && gguf_.is_array(key("attention.sliding_window_pattern"))) return windowed();
  const char* const name =
      no_window ? "attention.sliding_window" : "attention.sliding_window_pattern";
  return make_error(BLEND_E_FORMAT, "key '%s' is missing%s", key(name).c_str(),
                    no_window ? ", or 0" : ", or no list of layers");
}

Status GgufConfigReader::read_sharing() {
  BLEND_ASSIGN(const std::optional<uint32_t> sharing,
               gguf_.get_u32(key("attention.shared_kv_layers")));
  if (sharing.value_or(0) >= c_.n_layers) {
    return make_error(BLEND_E_FORMAT, "key '%s' is %u of %u layers",
                      key("attention.shared_kv_layers").c_str(), *sharing, c_.n_layers);
  }
  if (sharing.value_or(0) != 0) c_.own_kv = c_.n_layers - *sharing;
  return Status::ok();
}

Status GgufConfigReader::read_inputs() {
  BLEND_ASSIGN(const std::optional<uint32_t> inputs,
               gguf_.get_u32(key("embedding_length_per_layer_input")));
  c_.input_dim = inputs.value_or(0);
  if (c_.input_dim == 0) return Status::ok();
  BLEND_ASSIGN(c_.input_dim, in_range(key("embedding_length_per_layer_input"), c_.input_dim,
                                      kMaxWidth / c_.n_layers));
  return Status::ok();
}

// A Gemma 4's layers: windowed ones have the model's heads, the others heads of their own. The last
// ones are without K and V.
Status GgufConfigReader::read_gemma4() {
  BLEND_ASSIGN(const std::vector<bool> local, local_layers());
  BLEND_ASSIGN(const std::vector<uint32_t> kv_heads,
               by_layer("attention.head_count_kv", kMaxHeads));
  BLEND_RETURN_IF_ERROR(read_sharing());
  const uint32_t global_dim = c_.head_dim;
  BLEND_ASSIGN(c_.head_dim, required("attention.key_length_swa", kMaxHeadDim));
  for (uint32_t i = 0; i < c_.n_layers; ++i) {
    LayerAttention& layer = c_.layers[i];
    if (local[i]) c_.n_kv_heads = kv_heads[i];
    if (!local[i] && global_dim != c_.head_dim) layer.head_dim = global_dim;
    const std::string blk = "blk." + std::to_string(i) + ".";
    layer.k_is_v = !has_tensor((blk + "attn_v.weight").c_str()) &&
                   !has_tensor((blk + "attn_qkv.weight").c_str());
  }
  for (uint32_t i = 0; i < c_.n_layers; ++i) {
    if (kv_heads[i] != c_.n_kv_heads) c_.layers[i].n_kv_heads = kv_heads[i];
    if (c_.n_heads % kv_heads[i] == 0) continue;
    return make_error(BLEND_E_FORMAT, "key '%s' is %u, no multiple of the %u of '%s' in layer %u",
                      key("attention.head_count").c_str(), c_.n_heads, kv_heads[i],
                      key("attention.head_count_kv").c_str(), i);
  }
  // Whether V is K's says the layer whose K and V they are.
  BLEND_RETURN_IF_ERROR(share_kv(c_, local));
  BLEND_RETURN_IF_ERROR(read_inputs());
  c_.layer_scales = has_tensor("blk.0.layer_output_scale.weight");
  c_.v_norm = true;
  c_.attn_scale = 1;
  // A file with any of these has tensors that a Gemma 4 has no place for.
  c_.qkv_bias = c_.attn_out_bias = c_.ffn_bias = c_.attn_sinks = false;
  return Status::ok();
}

}  // namespace blend
