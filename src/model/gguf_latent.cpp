// Keys of a GGUF about attention over latent rows.
#include <cmath>

#include "model/gguf_config_reader.h"
#include "model/limits.h"

namespace blend {

// In llama.cpp's newer files key_length and value_length are those of the row that heads share; a
// head's own are in key_length_mla and value_length_mla.
Status GgufConfigReader::read_latent() {
  Latent& l = c_.latent;
  BLEND_ASSIGN(l.rank, required("attention.kv_lora_rank", kMaxHeadDim));
  BLEND_ASSIGN(l.rope, required("rope.dimension_count", kMaxHeadDim));
  const bool both = gguf_.has(key("attention.key_length_mla"));
  const char* const of_key = both ? "attention.key_length_mla" : "attention.key_length";
  const char* const of_value = both ? "attention.value_length_mla" : "attention.value_length";
  BLEND_ASSIGN(const uint32_t head, required(of_key, kMaxHeadDim));
  BLEND_ASSIGN(l.value, required(of_value, kMaxHeadDim));
  if (head <= l.rope) {
    return make_error(BLEND_E_FORMAT, "key '%s' is %u, and the %u of '%s' are a part of it",
                      key(of_key).c_str(), head, l.rope, key("rope.dimension_count").c_str());
  }
  l.nope = head - l.rope;
  const std::string q_rank = key("attention.q_lora_rank");
  BLEND_ASSIGN(const std::optional<uint32_t> given, gguf_.get_u32(q_rank));
  l.q_rank = given.value_or(0);
  if (l.q_rank > kMaxWidth) {
    return make_error(BLEND_E_FORMAT, "key '%s' is %u; up to %u make sense", q_rank.c_str(),
                      l.q_rank, kMaxWidth);
  }
  l.eps = c_.rms_eps;
  BLEND_RETURN_IF_ERROR(check_latent(l, c_.n_heads, key("attention.kv_lora_rank").c_str()));
  BLEND_ASSIGN(const std::optional<uint32_t> heads, of_layers("attention.head_count_kv"));
  if (heads.value_or(1) != 1 && *heads != c_.n_heads) {
    return make_error(BLEND_E_UNSUPPORTED, "key '%s' is %u; over latent rows it is 1 or '%s', %u",
                      key("attention.head_count_kv").c_str(), *heads,
                      key("attention.head_count").c_str(), c_.n_heads);
  }
  c_.n_kv_heads = 1;
  c_.head_dim = l.row() / 2;
  c_.attn_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(head)));
  return Status::ok();
}

}  // namespace blend
