// The tokenizer that a GGUF file carries.
#include "model/llama_source.h"

namespace blend {
namespace {

// An id whose key may be absent; -1 in the file means none.
Result<int32_t> token_id(const GgufReader& gguf, const char* key, int32_t otherwise) {
  if (!gguf.has(key)) return otherwise;
  BLEND_ASSIGN(const std::optional<double> id, gguf.get_float(key));
  // Ids are written as u32 or i32; "none" is -1 or its unsigned form.
  if (*id == -1 || *id == 4294967295.0) return -1;
  if (!(*id >= 0 && *id <= 2147483647.0) || *id != static_cast<double>(static_cast<int32_t>(*id))) {
    return make_error(BLEND_E_FORMAT, "key '%s' is %g, which is no token id", key, *id);
  }
  return static_cast<int32_t>(*id);
}

}  // namespace

Result<std::unique_ptr<SpmTokenizer>> read_spm_tokenizer(const GgufReader& gguf) {
  BLEND_ASSIGN(const std::optional<std::string> model, gguf.get_string("tokenizer.ggml.model"));
  if (!model) {
    return make_error(BLEND_E_FORMAT,
                      "key 'tokenizer.ggml.model' is missing: the file has no "
                      "tokenizer");
  }
  if (*model != "llama") {
    return make_error(
        BLEND_E_UNSUPPORTED,
        "tokenizer '%.40s' is not supported; libblend reads 'llama' (SentencePiece BPE)",
        model->c_str());
  }
  BLEND_ASSIGN(std::optional<std::vector<std::string>> tokens,
               gguf.get_strings("tokenizer.ggml.tokens"));
  if (!tokens) return make_error(BLEND_E_FORMAT, "key 'tokenizer.ggml.tokens' is missing");
  BLEND_ASSIGN(std::optional<std::vector<float>> scores, gguf.get_floats("tokenizer.ggml.scores"));
  if (!scores) return make_error(BLEND_E_FORMAT, "key 'tokenizer.ggml.scores' is missing");
  BLEND_ASSIGN(std::optional<std::vector<int32_t>> types,
               gguf.get_ints("tokenizer.ggml.token_type"));

  SpmVocab v;
  const auto n = static_cast<int64_t>(tokens->size());
  v.tokens = std::move(*tokens);
  v.scores = std::move(*scores);
  if (types) {
    if (types->empty() && n > 0) {
      return make_error(BLEND_E_FORMAT, "key 'tokenizer.ggml.token_type' is an empty array");
    }
    v.types = std::move(*types);
  }
  // Files that leave the ids out mean those of Llama's own vocabulary.
  const auto llama_id = [n](int32_t id) { return id < n ? id : -1; };
  BLEND_ASSIGN(v.unk, token_id(gguf, "tokenizer.ggml.unknown_token_id", llama_id(0)));
  BLEND_ASSIGN(v.bos, token_id(gguf, "tokenizer.ggml.bos_token_id", llama_id(1)));
  BLEND_ASSIGN(v.eos, token_id(gguf, "tokenizer.ggml.eos_token_id", llama_id(2)));
  for (const char* key : {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    BLEND_ASSIGN(const int32_t id, token_id(gguf, key, -1));
    if (id >= 0) v.stop.push_back(id);
  }
  BLEND_ASSIGN(const std::optional<bool> add_bos, gguf.get_bool("tokenizer.ggml.add_bos_token"));
  v.add_bos = add_bos.value_or(true) && v.bos >= 0;
  BLEND_ASSIGN(const std::optional<bool> add_space,
               gguf.get_bool("tokenizer.ggml.add_space_prefix"));
  v.add_space_prefix = add_space.value_or(true);
  return SpmTokenizer::create(std::move(v));
}

}  // namespace blend
