#include "chunk_table.h"

#include <nlohmann/json.hpp>

#include "blend/blend.hpp"
#include "choices.h"
#include "table.h"

namespace blend_cli {

std::string dtype_text(uint32_t kv_dtype) {
  switch (kv_dtype) {
    case BLEND_DTYPE_F32:
      return "f32";
    case BLEND_DTYPE_F16:
      return "f16";
    case BLEND_DTYPE_BF16:
      return "bf16";
    default:
      return "?";
  }
}

nlohmann::json chunk_json(const blend_chunk_info& info) {
  return {{"id", blendpp::ChunkId(info.id).hex()},
          {"n_tokens", info.n_tokens},
          {"n_prefix_tokens", info.n_prefix_tokens},
          {"kv_dtype", dtype_text(info.kv_dtype)},
          {"n_layers", info.n_layers},
          {"kv_dim", info.kv_dim},
          {"bytes", info.bytes},
          {"codec", name_of(codec_choices(), info.codec)},
          {"stored_bytes", info.stored_bytes},
          {"created_unix_s", info.created_unix_s},
          {"fingerprint", hex_text(info.fingerprint, sizeof info.fingerprint)}};
}

}  // namespace blend_cli
