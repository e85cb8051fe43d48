// The tokenizer in a GGUF file.
#include "model/gguf_tokenizer.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "model/spm_tokenizer.h"
#include "model/tokenizer/bpe_tokenizer.h"
#include "model/tokenizer/byte_level.h"
#include "model/tokenizer/pre_patterns.h"
#include "model/tokenizer/special_texts.h"

namespace blend {
namespace {

// An id whose key may be absent; -1 in the file means none.
Result<int32_t> token_id(const GgufReader& gguf, const char* key, int32_t otherwise) {
  if (!gguf.has(key)) return otherwise;
  BLEND_ASSIGN(const std::optional<double> id, gguf.get_float(key));
  // Ids are written as u32 or i32; "none" is -1 or its unsigned form.
  if (*id == -1 || *id == 4294967295.0) return -1;
  if (!(*id >= 0 && *id <= 2147483647.0) || *id != static_cast<double>(static_cast<int32_t>(*id))) {
    return make_error(BLEND_E_FORMAT, "key '%s' is %g, which is not a token id", key, *id);
  }
  return static_cast<int32_t>(*id);
}

Result<std::vector<int32_t>> stop_ids(const GgufReader& gguf) {
  std::vector<int32_t> stop;
  for (const char* key : {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    BLEND_ASSIGN(const int32_t id, token_id(gguf, key, -1));
    if (id >= 0) stop.push_back(id);
  }
  return stop;
}

Result<bool> adds_eos(const GgufReader& gguf) {
  BLEND_ASSIGN(const std::optional<bool> add, gguf.get_bool("tokenizer.ggml.add_eos_token"));
  return add.value_or(false);
}

// The texts of all tokens and their types; types may be empty where the file has none.
struct Vocabulary {
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
};

Result<Vocabulary> read_vocabulary(const GgufReader& gguf) {
  BLEND_ASSIGN(std::optional<std::vector<std::string>> tokens,
               gguf.get_strings("tokenizer.ggml.tokens"));
  if (!tokens) return make_error(BLEND_E_FORMAT, "key 'tokenizer.ggml.tokens' is missing");
  BLEND_ASSIGN(std::optional<std::vector<int32_t>> types,
               gguf.get_ints("tokenizer.ggml.token_type"));
  if (types && types->empty() && !tokens->empty()) {
    return make_error(BLEND_E_FORMAT, "key 'tokenizer.ggml.token_type' is an empty array");
  }
  Vocabulary v;
  v.tokens = std::move(*tokens);
  if (types) v.types = std::move(*types);
  return v;
}

Status check_types(const Vocabulary& v) {
  if (v.types.empty() || v.types.size() == v.tokens.size()) return Status::ok();
  return make_error(BLEND_E_FORMAT, "the vocabulary has %zu tokens and %zu token types",
                    v.tokens.size(), v.types.size());
}

Result<std::unique_ptr<Tokenizer>> read_spm(const GgufReader& gguf) {
  BLEND_ASSIGN(Vocabulary vocabulary, read_vocabulary(gguf));
  BLEND_ASSIGN(std::optional<std::vector<float>> scores, gguf.get_floats("tokenizer.ggml.scores"));
  if (!scores) return make_error(BLEND_E_FORMAT, "key 'tokenizer.ggml.scores' is missing");

  SpmVocab v;
  const auto n = static_cast<int64_t>(vocabulary.tokens.size());
  v.tokens = std::move(vocabulary.tokens);
  v.types = std::move(vocabulary.types);
  v.scores = std::move(*scores);
  // Files without the ids mean those of Llama's own vocabulary.
  const auto llama_id = [n](int32_t id) { return id < n ? id : -1; };
  BLEND_ASSIGN(v.unk, token_id(gguf, "tokenizer.ggml.unknown_token_id", llama_id(0)));
  BLEND_ASSIGN(v.bos, token_id(gguf, "tokenizer.ggml.bos_token_id", llama_id(1)));
  BLEND_ASSIGN(v.eos, token_id(gguf, "tokenizer.ggml.eos_token_id", llama_id(2)));
  BLEND_ASSIGN(v.stop, stop_ids(gguf));
  BLEND_ASSIGN(const std::optional<bool> add_bos, gguf.get_bool("tokenizer.ggml.add_bos_token"));
  v.add_bos = add_bos.value_or(true) && v.bos >= 0;
  BLEND_ASSIGN(v.closes_with_eos, adds_eos(gguf));
  BLEND_ASSIGN(const std::optional<bool> add_space,
               gguf.get_bool("tokenizer.ggml.add_space_prefix"));
  v.add_space_prefix = add_space.value_or(true);
  BLEND_ASSIGN(const std::optional<std::string> architecture,
               gguf.get_string("general.architecture"));
  v.strips_right = architecture.value_or("") == "phi3";
  BLEND_ASSIGN(std::unique_ptr<SpmTokenizer> tokenizer, SpmTokenizer::create(std::move(v)));
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

// Control and user-defined tokens are cut out of the text; merging builds only the others.
bool is_cut_out(TokenType type) {
  return type == TokenType::control || type == TokenType::unknown ||
         type == TokenType::user_defined;
}

void add_cut_out(const Vocabulary& v, size_t i, TokenType type, BpeTokenizerSpec& spec) {
  AddedToken token;
  token.text = v.tokens[i];
  token.id = static_cast<int32_t>(i);
  token.special = type != TokenType::user_defined;
  spec.added.push_back(std::move(token));
}

// The tokens of a vocabulary of characters (Gemma 4), whose bytes have tokens of their own.
void sort_characters(const Vocabulary& v, BpeTokenizerSpec& spec) {
  spec.bpe.byte_ids.fill(-1);
  spec.bpe.pieces.resize(v.tokens.size());
  for (size_t i = 0; i < v.tokens.size(); ++i) {
    const auto type = v.types.empty() ? TokenType::normal : static_cast<TokenType>(v.types[i]);
    if (type == TokenType::unused) continue;
    if (is_cut_out(type)) {
      add_cut_out(v, i, type, spec);
      continue;
    }
    if (const int byte = byte_of(v.tokens[i]); type == TokenType::byte && byte >= 0) {
      spec.bpe.byte_ids[static_cast<size_t>(byte)] = static_cast<int32_t>(i);
      continue;
    }
    spec.bpe.pieces[i] = v.tokens[i];
  }
}

// Plain text never becomes a control token. A token of one byte stands for that byte whatever its
// type, if no other does: llama.cpp finds it by its text.
void sort_tokens(const Vocabulary& v, BpeTokenizerSpec& spec) {
  std::array<int32_t, 256> others;  // byte tokens that merging does not build
  others.fill(-1);
  spec.bpe.byte_ids.fill(-1);
  spec.bpe.pieces.resize(v.tokens.size());
  for (size_t i = 0; i < v.tokens.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    const auto type = v.types.empty() ? TokenType::normal : static_cast<TokenType>(v.types[i]);
    if (type == TokenType::unused) continue;
    const bool apart = is_cut_out(type);
    std::string bytes = bytes_of_characters(v.tokens[i]).value_or("");
    if (bytes.size() == 1) {
      (apart ? others : spec.bpe.byte_ids)[static_cast<uint8_t>(bytes[0])] = id;
    }
    if (!apart) {
      spec.bpe.pieces[i] = std::move(bytes);
      continue;
    }
    add_cut_out(v, i, type, spec);
  }
  for (size_t b = 0; b < others.size(); ++b) {
    if (spec.bpe.byte_ids[b] < 0) spec.bpe.byte_ids[b] = others[b];
  }
}

// "left right": both are tokens, and so is their concatenation.
Status read_merges(const GgufReader& gguf, const Vocabulary& v, BpeSpec& bpe) {
  BLEND_ASSIGN(const std::optional<std::vector<std::string>> merges,
               gguf.get_strings("tokenizer.ggml.merges"));
  if (!merges) return make_error(BLEND_E_FORMAT, "key 'tokenizer.ggml.merges' is missing");
  std::unordered_map<std::string_view, int32_t> ids;
  ids.reserve(v.tokens.size());
  for (size_t i = 0; i < v.tokens.size(); ++i) {
    if (!bpe.pieces[i].empty()) ids.try_emplace(v.tokens[i], static_cast<int32_t>(i));
  }
  for (const int32_t id : bpe.byte_ids) {
    if (id >= 0) ids.try_emplace(v.tokens[static_cast<size_t>(id)], id);
  }
  const auto find = [&](std::string_view text) {
    const auto it = ids.find(text);
    return it == ids.end() ? -1 : it->second;
  };
  bpe.merges.reserve(merges->size());
  for (size_t i = 0; i < merges->size(); ++i) {
    const std::string& text = (*merges)[i];
    const size_t space = text.find(' ', 1);
    if (space == std::string::npos) {
      return make_error(BLEND_E_FORMAT,
                        "key 'tokenizer.ggml.merges': entry %zu has no space between two parts", i);
    }
    const std::string_view left = std::string_view(text).substr(0, space);
    const std::string_view right = std::string_view(text).substr(space + 1);
    std::string both(left);
    both += right;
    const BpeMerge merge = {find(left), find(right), find(both)};
    // Merges with texts that the vocabulary lacks have no effect.
    if (merge.left >= 0 && merge.right >= 0 && merge.result >= 0) bpe.merges.push_back(merge);
  }
  return Status::ok();
}

// What both kinds of vocabulary say of tokens that stand before a text and end it.
Status read_ends(const GgufReader& gguf, bool add_bos, BpeTokenizerSpec& spec) {
  BLEND_ASSIGN(spec.bos, token_id(gguf, "tokenizer.ggml.bos_token_id", -1));
  BLEND_ASSIGN(spec.eos, token_id(gguf, "tokenizer.ggml.eos_token_id", -1));
  BLEND_ASSIGN(spec.stop, stop_ids(gguf));
  BLEND_ASSIGN(const std::optional<bool> given, gguf.get_bool("tokenizer.ggml.add_bos_token"));
  spec.add_bos = given.value_or(add_bos);
  BLEND_ASSIGN(const bool add_eos, adds_eos(gguf));
  if (add_eos && spec.eos >= 0) spec.closing = {spec.eos};
  return Status::ok();
}

// Gemma 4's: merges of characters over lines, in which spaces are "▁".
Result<std::unique_ptr<Tokenizer>> read_characters(const GgufReader& gguf) {
  constexpr const char* kSpace = "\u2581";
  BLEND_ASSIGN(Vocabulary v, read_vocabulary(gguf));
  BLEND_RETURN_IF_ERROR(check_types(v));
  BpeTokenizerSpec spec;
  sort_characters(v, spec);
  BLEND_RETURN_IF_ERROR(read_merges(gguf, v, spec.bpe));
  spec.bpe.bytes = false;
  spec.bpe.byte_fallback = spec.bpe.fuse_unknown = true;
  spec.bpe.ignore_merges = false;
  BLEND_ASSIGN(spec.bpe.unknown, token_id(gguf, "tokenizer.ggml.unknown_token_id", -1));
  NormalizeStep spaces;
  spaces.kind = NormalizeStep::Kind::replace;
  BLEND_ASSIGN(spaces.what, Regex::literal(" "));
  spaces.with = kSpace;
  spec.normalize.push_back(std::move(spaces));
  SplitStep lines;
  BLEND_ASSIGN(lines.at, Regex::compile(R"(\n+)"));
  spec.split.push_back(std::move(lines));
  spec.decoder.byte_fallback = true;
  spec.decoder.replace.emplace_back(kSpace, " ");
  spec.tokens = std::move(v.tokens);
  BLEND_RETURN_IF_ERROR(read_ends(gguf, true, spec));
  BLEND_ASSIGN(std::unique_ptr<BpeTokenizer> tokenizer, BpeTokenizer::create(std::move(spec)));
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

Result<std::unique_ptr<Tokenizer>> read_bpe(const GgufReader& gguf) {
  BLEND_ASSIGN(Vocabulary v, read_vocabulary(gguf));
  BLEND_RETURN_IF_ERROR(check_types(v));
  BLEND_ASSIGN(const std::optional<std::string> name, gguf.get_string("tokenizer.ggml.pre"));
  Result<PreTokenizer> pre = named_pre_tokenizer(name.value_or("default"));
  if (!pre.is_ok()) return pre.status().with_context("key 'tokenizer.ggml.pre'");

  BpeTokenizerSpec spec;
  sort_tokens(v, spec);
  BLEND_RETURN_IF_ERROR(read_merges(gguf, v, spec.bpe));
  spec.bpe.ignore_merges = pre->ignore_merges;
  spec.normalize = std::move(pre->normalize);
  spec.split = std::move(pre->split);
  spec.decoder.byte_level = true;
  spec.tokens = std::move(v.tokens);
  BLEND_ASSIGN(const std::optional<bool> space, gguf.get_bool("tokenizer.ggml.add_space_prefix"));
  if (space.value_or(false) && !spec.split.empty()) spec.split.front().prefix_space = true;
  BLEND_RETURN_IF_ERROR(read_ends(gguf, pre->add_bos, spec));
  BLEND_ASSIGN(const std::optional<std::string> architecture,
               gguf.get_string("general.architecture"));
  if (architecture.value_or("") == "gpt-oss") {
    // The end of a call of a tool, which no key names.
    const auto call = std::find(spec.tokens.begin(), spec.tokens.end(), "<|call|>");
    if (call != spec.tokens.end()) {
      spec.stop.push_back(static_cast<int32_t>(call - spec.tokens.begin()));
    }
  }
  BLEND_ASSIGN(std::unique_ptr<BpeTokenizer> tokenizer, BpeTokenizer::create(std::move(spec)));
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> read_gguf_tokenizer(const GgufReader& gguf) {
  if (!gguf.has("tokenizer.ggml.model")) {
    return make_error(BLEND_E_FORMAT,
                      "key 'tokenizer.ggml.model' is missing: the file has no tokenizer");
  }
  BLEND_ASSIGN(const std::optional<std::string> model, gguf.get_string("tokenizer.ggml.model"));
  const std::string name = model.value_or("");
  if (name == "llama") return read_spm(gguf);
  if (name == "gpt2") return read_bpe(gguf);
  if (name == "gemma4") return read_characters(gguf);
  return make_error(BLEND_E_UNSUPPORTED,
                    "tokenizer '%.40s' is not supported; libblend reads 'llama' (SentencePiece "
                    "BPE), 'gpt2' (byte-level BPE) and 'gemma4' (BPE of characters)",
                    name.c_str());
}

}  // namespace blend
