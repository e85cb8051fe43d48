#include "chunk_table.h"

#include <nlohmann/json.hpp>
#include <sstream>

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

namespace {

nlohmann::json words_of(const std::string& text) {
  nlohmann::json words = nlohmann::json::array();
  std::istringstream in(text);
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

}  // namespace

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
          {"last_used_unix_s", info.last_used_unix_s},
          {"n_uses", info.n_uses},
          {"pinned", info.pinned != 0},
          {"label", info.label},
          {"tags", words_of(info.tags)},
          {"fingerprint", hex_text(info.fingerprint, sizeof info.fingerprint)}};
}

}  // namespace blend_cli
