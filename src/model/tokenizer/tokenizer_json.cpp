#include "model/tokenizer/tokenizer_json.h"

#include <algorithm>
#include <unordered_map>

#include "base/json_reader.h"
#include "model/tokenizer/byte_level.h"
#include "model/tokenizer/json_steps.h"
#include "model/tokenizer/special_texts.h"

namespace blend {
namespace {

// Ids that the entries leave out are holes, of which a genuine file has few.
int64_t max_id(size_t entries) { return static_cast<int64_t>(4 * entries) + (1 << 16); }

Status place(BpeTokenizerSpec& spec, int64_t id, std::string_view text, const std::string& where) {
  const auto at = static_cast<size_t>(id);
  if (spec.tokens.size() <= at) spec.tokens.resize(at + 1);
  if (spec.tokens[at] == text) return Status::ok();
  if (!spec.tokens[at].empty()) {
    return make_error(BLEND_E_FORMAT, "%s: the id %lld is also that of '%.40s'", where.c_str(),
                      static_cast<long long>(id), spec.tokens[at].c_str());
  }
  spec.tokens[at] = text;
  return Status::ok();
}

using Ids = std::unordered_map<std::string_view, int32_t>;  // into the tree

Status read_vocab(const JsonView& vocab, BpeTokenizerSpec& spec, Ids& ids) {
  BLEND_ASSIGN(const Json::Object* const entries, vocab.object());
  ids.reserve(entries->size());
  for (const auto& [text, value] : *entries) {
    const std::string where = vocab.path() + "['" + text.substr(0, 40) + "']";
    BLEND_ASSIGN(const int64_t id, JsonView(value, where).integer(0, max_id(entries->size())));
    if (text.empty()) continue;  // empty
    BLEND_RETURN_IF_ERROR(place(spec, id, text, where));
    ids.emplace(text, static_cast<int32_t>(id));
  }
  return Status::ok();
}

Status read_added(const JsonView& root, const Ids& ids, BpeTokenizerSpec& spec) {
  const std::optional<JsonView> list = root.get("added_tokens");
  if (!list) return Status::ok();
  BLEND_ASSIGN(const Json::Array* const entries, list->array());
  const int64_t limit = max_id(spec.tokens.size() + entries->size());
  for (size_t i = 0; i < entries->size(); ++i) {
    const JsonView entry = list->element(i);
    AddedToken token;
    BLEND_ASSIGN(const JsonView content, entry.need("content"));
    BLEND_ASSIGN(token.text, content.string());
    BLEND_ASSIGN(const JsonView id, entry.need("id"));
    BLEND_ASSIGN(const int64_t number, id.integer(0, limit));
    token.id = static_cast<int32_t>(number);
    BLEND_ASSIGN(token.special, entry.boolean_or("special", false));
    BLEND_ASSIGN(token.single_word, entry.boolean_or("single_word", false));
    BLEND_ASSIGN(token.lstrip, entry.boolean_or("lstrip", false));
    BLEND_ASSIGN(token.rstrip, entry.boolean_or("rstrip", false));
    BLEND_ASSIGN(token.normalized, entry.boolean_or("normalized", !token.special));
    if (const auto known = ids.find(token.text); known != ids.end() && known->second != token.id) {
      return make_error(BLEND_E_FORMAT, "%s: '%.40s' has the id %d here and %d in the vocabulary",
                        entry.path().c_str(), token.text.c_str(), token.id, known->second);
    }
    if (!token.text.empty()) BLEND_RETURN_IF_ERROR(place(spec, number, token.text, entry.path()));
    spec.added.push_back(std::move(token));
  }
  return Status::ok();
}

// The two parts of a merge: ["left", "right"], or "left right" in files from before 2024.
Status merge_parts(const JsonView& merge, std::string_view& left, std::string_view& right) {
  if (const std::string* const text = merge.value().string()) {
    const size_t space = text->find(' ');
    if (space == std::string::npos)
      return merge.error(BLEND_E_FORMAT, "no space between two parts");
    left = std::string_view(*text).substr(0, space);
    right = std::string_view(*text).substr(space + 1);
    return Status::ok();
  }
  BLEND_ASSIGN(const Json::Array* const pair, merge.array());
  if (pair->size() != 2 || (*pair)[0].string() == nullptr || (*pair)[1].string() == nullptr) {
    return merge.error(BLEND_E_FORMAT, "a merge is of two texts");
  }
  left = *(*pair)[0].string();
  right = *(*pair)[1].string();
  return Status::ok();
}

Status read_merges(const JsonView& merges, const Ids& ids, const std::vector<bool>& control,
                   BpeSpec& bpe) {
  BLEND_ASSIGN(const Json::Array* const entries, merges.array());
  bpe.merges.reserve(entries->size());
  std::string both;
  for (size_t i = 0; i < entries->size(); ++i) {
    std::string_view left;
    std::string_view right;
    const JsonView entry = merges.element(i);
    BLEND_RETURN_IF_ERROR(merge_parts(entry, left, right));
    both.assign(left).append(right);
    BpeMerge merge;
    const std::pair<std::string_view, int32_t*> parts[] = {
        {left, &merge.left}, {right, &merge.right}, {both, &merge.result}};
    for (const auto& [text, id] : parts) {
      const auto known = ids.find(text);
      if (known == ids.end()) {
        return make_error(BLEND_E_FORMAT, "%s: '%.40s' is not a token of the vocabulary",
                          entry.path().c_str(), std::string(text).c_str());
      }
      *id = known->second;
    }
    // Plain text never becomes a control token.
    if (!control[static_cast<size_t>(merge.result)]) bpe.merges.push_back(merge);
  }
  return Status::ok();
}

// Pieces that merging may build, and the tokens of single bytes. If a byte's token is a control
// token, the byte becomes that token, as in tokenizers: it has no other.
void read_pieces(const BpeTokenizerSpec& spec, const Ids& ids, const std::vector<bool>& control,
                 BpeSpec& bpe) {
  bpe.byte_ids.fill(-1);
  bpe.pieces.resize(spec.tokens.size());
  for (const auto& [text, id] : ids) {
    std::string bytes = bpe.bytes ? bytes_of_characters(text).value_or("") : std::string(text);
    const int byte = !bpe.bytes          ? byte_of(text)
                     : bytes.size() == 1 ? static_cast<uint8_t>(bytes[0])
                                         : -1;
    if (byte >= 0) bpe.byte_ids[static_cast<size_t>(byte)] = id;
    if (!control[static_cast<size_t>(id)]) bpe.pieces[static_cast<size_t>(id)] = std::move(bytes);
  }
}

Status read_model(const JsonView& root, const JsonView& model, BpeTokenizerSpec& spec) {
  BLEND_ASSIGN(const std::string type, model.string_or("type", "BPE"));
  if (type != "BPE") {
    return make_error(BLEND_E_UNSUPPORTED,
                      "model.type is '%.40s', which is not supported; libblend reads BPE",
                      type.c_str());
  }
  for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    BLEND_ASSIGN(const std::string affix, model.string_or(name, ""));
    if (!affix.empty()) {
      return make_error(BLEND_E_UNSUPPORTED, "model.%s is not supported", name);
    }
  }
  if (const std::optional<JsonView> dropout = model.get("dropout")) {
    BLEND_ASSIGN(const double share, dropout->number());
    if (share != 0) return dropout->error(BLEND_E_UNSUPPORTED, "BPE dropout is not supported");
  }
  BpeSpec& bpe = spec.bpe;
  BLEND_ASSIGN(bpe.ignore_merges, model.boolean_or("ignore_merges", false));
  BLEND_ASSIGN(bpe.byte_fallback, model.boolean_or("byte_fallback", false));
  BLEND_ASSIGN(bpe.fuse_unknown, model.boolean_or("fuse_unk", false));

  Ids ids;
  BLEND_ASSIGN(const JsonView vocab, model.need("vocab"));
  BLEND_RETURN_IF_ERROR(read_vocab(vocab, spec, ids));
  BLEND_RETURN_IF_ERROR(read_added(root, ids, spec));
  if (spec.tokens.empty()) return vocab.error(BLEND_E_FORMAT, "the vocabulary is empty");
  std::vector<bool> control(spec.tokens.size());
  for (const AddedToken& t : spec.added) {
    if (t.special && !t.text.empty()) control[static_cast<size_t>(t.id)] = true;
  }
  BLEND_ASSIGN(const std::string unknown, model.string_or("unk_token", ""));
  if (const auto known = ids.find(unknown); known != ids.end()) bpe.unknown = known->second;
  if (bpe.unknown < 0 && !unknown.empty()) {
    return make_error(BLEND_E_FORMAT, "model.unk_token '%.40s' is not a token of the vocabulary",
                      unknown.c_str());
  }
  read_pieces(spec, ids, control, bpe);
  BLEND_ASSIGN(const JsonView merges, model.need("merges"));
  return read_merges(merges, ids, control, bpe);
}

}  // namespace

Result<BpeTokenizerSpec> parse_tokenizer_json(std::string_view text) {
  BLEND_ASSIGN(const Json json, Json::parse(text));
  const JsonView root(json, "");
  BLEND_ASSIGN(const JsonView model, root.need("model"));
  BpeTokenizerSpec spec;
  BLEND_RETURN_IF_ERROR(read_text_steps(root, spec));
  BLEND_RETURN_IF_ERROR(read_model(root, model, spec));
  BLEND_RETURN_IF_ERROR(read_post_processor(root, spec));
  return spec;
}

int32_t find_token(const BpeTokenizerSpec& spec, std::string_view text) {
  const auto at = std::find(spec.tokens.begin(), spec.tokens.end(), text);
  return at == spec.tokens.end() || text.empty() ? -1
                                                 : static_cast<int32_t>(at - spec.tokens.begin());
}

}  // namespace blend
