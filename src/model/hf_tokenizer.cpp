#include "model/hf_tokenizer.h"

#include <algorithm>

#include "model/json_file.h"
#include "model/tokenizer/tokenizer_json.h"

namespace blend {
namespace {

// "</s>" or {"content": "</s>", ...}; "" where it is absent.
Result<std::string> token_text(const JsonView& root, const char* name) {
  const std::optional<JsonView> token = root.get(name);
  if (!token) return std::string();
  if (token->value().string() != nullptr) return token->string();
  return token->string_or("content", "");
}

// An id or a list of ids, as `eos_token_id` is either; those outside the vocabulary are left out.
Result<std::vector<int32_t>> token_ids(const JsonView& root, const char* name, size_t n_tokens) {
  std::vector<int32_t> ids;
  const std::optional<JsonView> value = root.get(name);
  if (!value) return ids;
  const auto take = [&](const JsonView& entry) -> Status {
    BLEND_ASSIGN(const int64_t id, entry.integer(-1, INT32_MAX));
    if (id >= 0 && static_cast<size_t>(id) < n_tokens) ids.push_back(static_cast<int32_t>(id));
    return Status::ok();
  };
  if (const Json::Array* const list = value->value().array()) {
    for (size_t i = 0; i < list->size(); ++i) BLEND_RETURN_IF_ERROR(take(value->element(i)));
  } else {
    BLEND_RETURN_IF_ERROR(take(*value));
  }
  return ids;
}

// Makes the vocabulary as long as the embedding.
void fit_vocabulary(BpeTokenizerSpec& spec, uint32_t n_vocab) {
  const auto beyond = [&](int32_t id) { return id >= static_cast<int64_t>(n_vocab); };
  spec.tokens.resize(n_vocab);
  if (spec.bpe.pieces.size() > n_vocab) spec.bpe.pieces.resize(n_vocab);
  std::erase_if(spec.added, [&](const AddedToken& t) { return beyond(t.id); });
  std::erase_if(spec.bpe.merges, [&](const BpeMerge& m) { return beyond(m.result); });
  for (int32_t& id : spec.bpe.byte_ids) id = beyond(id) ? -1 : id;
  if (beyond(spec.bpe.unknown)) spec.bpe.unknown = -1;
  if (beyond(spec.bos)) spec.bos = -1;
  std::erase_if(spec.closing, beyond);
}

// The first of several ways in which files say it: a token's text, then ids.
Status read_special(const JsonView& config, const JsonView& extra, const JsonView& generation,
                    BpeTokenizerSpec& spec) {
  const size_t n = spec.tokens.size();
  BLEND_ASSIGN(const std::string bos_text, token_text(extra, "bos_token"));
  if (spec.bos < 0) spec.bos = find_token(spec, bos_text);
  BLEND_ASSIGN(const std::vector<int32_t> bos, token_ids(config, "bos_token_id", n));
  if (spec.bos < 0 && !bos.empty()) spec.bos = bos[0];
  BLEND_ASSIGN(const bool add_bos, extra.boolean_or("add_bos_token", false));
  spec.add_bos = (spec.add_bos || add_bos) && spec.bos >= 0;

  BLEND_ASSIGN(const std::string eos_text, token_text(extra, "eos_token"));
  spec.eos = find_token(spec, eos_text);
  BLEND_ASSIGN(spec.stop, token_ids(generation, "eos_token_id", n));
  BLEND_ASSIGN(const std::vector<int32_t> eos, token_ids(config, "eos_token_id", n));
  spec.stop.insert(spec.stop.end(), eos.begin(), eos.end());
  if (spec.eos < 0 && !spec.stop.empty()) spec.eos = spec.stop[0];
  BLEND_ASSIGN(const bool add_eos, extra.boolean_or("add_eos_token", false));
  if (add_eos && spec.closing.empty() && spec.eos >= 0) spec.closing = {spec.eos};
  return Status::ok();
}

// A template, or several by name, of which "default" is for conversations.
Result<std::string> read_chat_template(const std::string& directory, const JsonView& extra) {
  Result<MappedFile> file = MappedFile::open(directory + "/chat_template.jinja");
  if (file.is_ok()) return std::string(text_of(*file));
  if (file.status().code() != BLEND_E_NOT_FOUND) return file.status();
  const std::optional<JsonView> value = extra.get("chat_template");
  if (!value) return std::string();
  const Json::Array* const list = value->value().array();
  if (list == nullptr) return value->string();
  for (size_t i = 0; i < list->size(); ++i) {
    BLEND_ASSIGN(const std::string name, value->element(i).string_or("name", ""));
    if (name == "default") return value->element(i).string_or("template", "");
  }
  return std::string();
}

}  // namespace

Result<HfTokenizer> open_hf_tokenizer(const std::string& directory, const JsonView& config,
                                      uint32_t n_vocab) {
  constexpr const char* kName = "tokenizer.json";
  Result<MappedFile> file = MappedFile::open(directory + "/" + kName);
  if (file.status().code() == BLEND_E_NOT_FOUND) {
    return make_error(
        BLEND_E_NOT_FOUND,
        "the directory has no '%s'; a tokenizer that is only in 'tokenizer.model' can "
        "be saved again by transformers, which writes it",
        kName);
  }
  if (!file.is_ok()) return file.status();
  Result<BpeTokenizerSpec> spec = parse_tokenizer_json(text_of(*file));
  if (!spec.is_ok()) return spec.status().with_context(kName);
  fit_vocabulary(*spec, n_vocab);

  BLEND_ASSIGN(const Json extra, read_json(directory, "tokenizer_config.json"));
  BLEND_ASSIGN(const Json generation, read_json(directory, "generation_config.json"));
  const JsonView extra_view(extra, "tokenizer_config.json");
  BLEND_RETURN_IF_ERROR(
      read_special(config, extra_view, JsonView(generation, "generation_config.json"), *spec));
  HfTokenizer out;
  BLEND_ASSIGN(out.chat_template, read_chat_template(directory, extra_view));
  // It is passed on as a C string.
  out.chat_template.resize(std::min(out.chat_template.size(), out.chat_template.find('\0')));
  auto tokenizer = BpeTokenizer::create(std::move(*spec));
  if (!tokenizer.is_ok()) return tokenizer.status().with_context(kName);
  out.tokenizer = std::move(*tokenizer);
  return out;
}

}  // namespace blend
