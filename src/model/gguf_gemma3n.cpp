// Gemma 3n's keys of a GGUF.
#include <algorithm>
#include <cmath>

#include "model/gguf_config_reader.h"
#include "model/limits.h"
#include "model/shared_kv.h"

namespace blend {

Status GgufConfigReader::read_gemma3n() {
  BLEND_ASSIGN(const std::vector<bool> local, local_layers());
  BLEND_RETURN_IF_ERROR(read_sharing());
  c_.layers.resize(c_.n_layers);
  BLEND_RETURN_IF_ERROR(share_kv(c_, local));
  BLEND_RETURN_IF_ERROR(read_inputs());
  if (c_.input_dim == 0) {
    return make_error(BLEND_E_FORMAT, "key '%s' is missing, or 0",
                      key("embedding_length_per_layer_input").c_str());
  }
  BLEND_ASSIGN(c_.n_streams, required("altup.num_inputs", kMaxStreams));
  BLEND_ASSIGN(const std::optional<uint32_t> active, gguf_.get_u32(key("altup.active_idx")));
  if (c_.n_streams == 1 || active.value_or(0) != 0) {
    return make_error(BLEND_E_UNSUPPORTED,
                      "keys '%s' and '%s' are %u and %u; libblend runs several streams of which "
                      "layers compute the first, 0",
                      key("altup.num_inputs").c_str(), key("altup.active_idx").c_str(),
                      c_.n_streams, active.value_or(0));
  }
  // No key says how large a Laurel block is.
  const GgufTensor* const laurel = gguf_.tensor("blk.0.laurel_l.weight");
  if (laurel == nullptr) {
    return make_error(BLEND_E_FORMAT, "tensor '%s' is missing", "blk.0.laurel_l.weight");
  }
  const uint64_t rank = laurel->dims.size() == 2 ? laurel->dims[1] : 0;
  if (rank == 0 || rank > kMaxWidth) {
    return make_error(BLEND_E_FORMAT, "tensor '%s' is no matrix of 1 to %u rows",
                      laurel->name.c_str(), kMaxWidth);
  }
  c_.laurel_rank = static_cast<uint32_t>(rank);
  const std::string cuts = key("activation_sparsity_scale");
  BLEND_ASSIGN(const std::optional<std::vector<float>> list, gguf_.get_floats(cuts));
  if (!list || list->size() != c_.n_layers) {
    return make_error(BLEND_E_FORMAT, "key '%s' has %zu entries for %u layers", cuts.c_str(),
                      list ? list->size() : 0, c_.n_layers);
  }
  for (const float cut : *list) {
    if (std::isfinite(cut) || cut < 0) continue;
    return make_error(BLEND_E_FORMAT, "key '%s' holds %g; numbers and -infinity make sense",
                      cuts.c_str(), static_cast<double>(cut));
  }
  const auto cuts_gate = [](float cut) { return std::isfinite(cut); };
  if (std::any_of(list->begin(), list->end(), cuts_gate)) c_.gate_cuts = *list;
  c_.v_norm = true;
  c_.attn_scale = 1;
  // A file with any of these has tensors that a Gemma 3n has no place for.
  c_.qkv_bias = c_.attn_out_bias = c_.ffn_bias = c_.attn_sinks = false;
  return Status::ok();
}

}  // namespace blend
