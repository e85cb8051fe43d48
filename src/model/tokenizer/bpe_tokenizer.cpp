#include "model/tokenizer/bpe_tokenizer.h"

#include <algorithm>

#include "model/tokenizer/byte_level.h"
#include "model/tokenizer/special_texts.h"

namespace blend {
namespace {

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
}

}  // namespace

// State of one call of encode.
struct BpeTokenizer::Encoder {
  bool special = false;
  bool prefix = true;  // spaces may be put in front
  Bpe::Scratch scratch;
  Pieces pieces;
  std::vector<TextPart> parts;
  std::vector<int32_t> out;
};

Result<std::unique_ptr<BpeTokenizer>> BpeTokenizer::create(BpeTokenizerSpec spec) {
  const size_t n = spec.tokens.size();
  if (n == 0) return make_error(BLEND_E_FORMAT, "the vocabulary is empty");
  const auto check = [&](const char* what, int32_t id) -> Status {
    if (id >= -1 && id < static_cast<int64_t>(n)) return Status::ok();
    return make_error(BLEND_E_FORMAT, "the %s token's id %d is outside the vocabulary of %zu", what,
                      id, n);
  };
  BLEND_RETURN_IF_ERROR(check("BOS", spec.bos));
  BLEND_RETURN_IF_ERROR(check("EOS", spec.eos));
  BLEND_RETURN_IF_ERROR(check("unknown", spec.bpe.unknown));
  for (const int32_t id : spec.closing) BLEND_RETURN_IF_ERROR(check("closing", id));
  for (const int32_t id : spec.stop) BLEND_RETURN_IF_ERROR(check("end-of-turn", id));
  std::unique_ptr<BpeTokenizer> t(new BpeTokenizer(std::move(spec.tokens), std::move(spec.bpe)));
  t->kinds_.assign(n, Kind::piece);
  t->normalize_ = std::move(spec.normalize);
  t->split_ = std::move(spec.split);
  t->decoder_ = std::move(spec.decoder);
  t->bos_ = spec.bos;
  t->eos_ = spec.eos;
  t->add_bos_ = spec.add_bos && spec.bos >= 0;
  t->closing_ = std::move(spec.closing);
  t->stop_ = std::move(spec.stop);
  BLEND_RETURN_IF_ERROR(t->take_added(std::move(spec.added)));
  std::sort(t->stop_.begin(), t->stop_.end());
  return t;
}

Status BpeTokenizer::take_added(std::vector<AddedToken> added) {
  for (AddedToken& token : added) {
    if (token.id < 0 || static_cast<size_t>(token.id) >= tokens_.size()) {
      return make_error(BLEND_E_FORMAT, "the added token '%.80s' has the id %d, outside the %zu",
                        token.text.c_str(), token.id, tokens_.size());
    }
    if (token.text.empty()) continue;  // empty: never found
    if (token.text.size() > AddedTokens::kMaxText) {
      return make_error(BLEND_E_UNSUPPORTED,
                        "the added token %d has a text of %zu bytes; up to %zu are allowed",
                        token.id, token.text.size(), AddedTokens::kMaxText);
    }
    kinds_[static_cast<size_t>(token.id)] = token.special ? Kind::control : Kind::added;
    if (ends_turn(token.text)) stop_.push_back(token.id);
    if (!token.normalized) {
      verbatim_.add(std::move(token));
      continue;
    }
    for (const bool begins : {true, false}) {
      AddedToken normal = token;
      if (valid_utf8_prefix(token.text) == token.text.size()) {
        BLEND_ASSIGN(normal.text, normalize(normalize_, token.text, begins));
      }
      if (normal.text.empty() || normal.text.size() > AddedTokens::kMaxText) continue;
      (begins ? normalized_ : normalized_plain_).add(std::move(normal));
    }
  }
  // Any text may become these, so they count as text, and are shown.
  for (const int32_t id : bpe_.byte_tokens()) {
    if (id >= 0) kinds_[static_cast<size_t>(id)] = Kind::piece;
  }
  return Status::ok();
}

bool BpeTokenizer::is_stop(int32_t token) const {
  return token >= 0 && (token == eos_ || std::binary_search(stop_.begin(), stop_.end(), token));
}

Result<std::vector<int32_t>> BpeTokenizer::encode_marked(std::string_view text, uint32_t flags,
                                                         const TextMarks& marks) const {
  if (text.size() > Bpe::kMaxWord) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "a text of %zu bytes; up to %zu can be tokenized",
                      text.size(), Bpe::kMaxWord);
  }
  Encoder e;
  e.special = (flags & BLEND_TOKENIZE_SPECIAL) != 0;
  const bool prefix = (flags & BLEND_TOKENIZE_RAW) == 0;
  if ((flags & BLEND_TOKENIZE_BOS) != 0 && add_bos_) e.out.push_back(bos_);
  std::vector<TextPart> parts;
  verbatim_.split(text, e.special, marks, parts);
  for (const TextPart& part : parts) {
    if (part.token >= 0) {
      e.out.push_back(part.token);
      continue;
    }
    const bool first = part.text.data() == text.data();
    const bool begins = first && !marks.continues;
    e.prefix = prefix && (begins || !first);
    // Control tokens that are looked for in the normalized text, where offsets are not known: plain
    // text, in which they must not be found, is encoded by itself.
    if (normalized_.has_special() && e.special && !marks.plain.empty()) {
      BLEND_RETURN_IF_ERROR(encode_apart(text, part.text, begins, marks, e));
      continue;
    }
    BLEND_RETURN_IF_ERROR(encode_part(part.text, begins, e));
  }
  return std::move(e.out);
}

// Cuts a part of `text` where plain text begins and ends.
Status BpeTokenizer::encode_apart(std::string_view text, std::string_view part, bool begins,
                                  const TextMarks& marks, Encoder& e) const {
  const auto offset = static_cast<size_t>(part.data() - text.data());
  for (size_t at = offset; at < offset + part.size();) {
    const bool plain = marks.touches_plain(at, at + 1);
    size_t end = at + 1;
    while (end < offset + part.size() && marks.touches_plain(end, end + 1) == plain) ++end;
    e.special = !plain;
    BLEND_RETURN_IF_ERROR(encode_part(text.substr(at, end - at), begins && at == offset, e));
    e.prefix = false;
    at = end;
  }
  e.special = true;
  return Status::ok();
}

// Normalizes the valid parts of a text; the bytes between them are words, unchanged.
Status BpeTokenizer::encode_part(std::string_view text, bool begins, Encoder& e) const {
  bool first = true;
  while (!text.empty()) {
    const size_t valid = valid_utf8_prefix(text);
    if (valid > 0) {
      const bool prefix = e.prefix && first;
      BLEND_ASSIGN(const std::string normal, normalize(normalize_, text.substr(0, valid), prefix));
      std::vector<TextPart> parts;
      (e.prefix ? normalized_ : normalized_plain_).split(normal, e.special, {}, parts);
      for (const TextPart& part : parts) {
        if (part.token >= 0) {
          e.out.push_back(part.token);
        } else {
          const bool at_start = begins && first && part.text.data() == normal.data();
          BLEND_RETURN_IF_ERROR(encode_normal(part.text, at_start, e));
        }
      }
      text.remove_prefix(valid);
    }
    size_t invalid = 0;
    while (invalid < text.size() && valid_utf8_prefix(text.substr(invalid, 4)) == 0) ++invalid;
    if (invalid > 0) bpe_.encode(text.substr(0, invalid), e.scratch, e.out);
    text.remove_prefix(invalid);
    first = false;
  }
  return Status::ok();
}

Status BpeTokenizer::encode_normal(std::string_view text, bool begins, Encoder& e) const {
  e.pieces.text = text;
  e.pieces.ranges.assign(1, {0, text.size()});
  BLEND_RETURN_IF_ERROR(split(split_, begins, e.prefix, e.pieces));
  for (const TextRange& r : e.pieces.ranges) {
    bpe_.encode(std::string_view(e.pieces.text).substr(r.begin, r.end - r.begin), e.scratch, e.out);
  }
  return Status::ok();
}

std::string BpeTokenizer::piece(int32_t token, uint32_t flags) const {
  if (token < 0 || static_cast<size_t>(token) >= tokens_.size()) return {};
  const std::string& text = tokens_[static_cast<size_t>(token)];
  switch (kinds_[static_cast<size_t>(token)]) {
    case Kind::control:
      return (flags & BLEND_TOKENIZE_SPECIAL) != 0 ? text : std::string();
    case Kind::added:  // also built by merging, where the vocabulary has it (Gemma's runs of
                       // spaces)
    case Kind::piece:
      break;
  }
  if (decoder_.byte_level) {
    if (kinds_[static_cast<size_t>(token)] == Kind::added) return text;
    // A text that stands for no bytes was written literally.
    return bytes_of_characters(text).value_or(text);
  }
  if (decoder_.byte_fallback) {
    if (const int b = byte_of(text); b >= 0) return {static_cast<char>(b)};
  }
  std::string out = text;
  for (const auto& [from, to] : decoder_.replace) replace_all(out, from, to);
  return out;
}

Result<std::string> BpeTokenizer::decode(std::span<const int32_t> tokens, uint32_t flags) const {
  std::string out;
  uint32_t strip = (flags & BLEND_TOKENIZE_RAW) != 0 ? 0 : decoder_.strip_count;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const int32_t token = tokens[i];
    if (token < 0 || static_cast<size_t>(token) >= tokens_.size()) {
      return make_error(BLEND_E_INVALID_ARGUMENT,
                        "token %d at index %zu is outside the vocabulary of %zu", token, i,
                        tokens_.size());
    }
    const std::string text = piece(token, flags);
    std::string_view rest = text;
    // Control tokens that are not shown may precede the text, and are not part of it.
    if (kinds_[static_cast<size_t>(token)] != Kind::control || !text.empty()) {
      while (strip > 0 && rest.starts_with(decoder_.strip)) {
        rest.remove_prefix(decoder_.strip.size());
        --strip;
      }
      if (!rest.empty() || text.empty()) strip = 0;
    }
    out += rest;
  }
  return out;
}

void BpeTokenizer::hash(Sha256Hasher& hasher) const {
  hasher.field("bpe").field(static_cast<uint64_t>(tokens_.size()));
  for (size_t i = 0; i < tokens_.size(); ++i) {
    hasher.field(tokens_[i]).field(static_cast<uint64_t>(kinds_[i]));
  }
  bpe_.hash(hasher);
  verbatim_.hash(hasher);
  normalized_.hash(hasher);
  hash_steps(normalize_, split_, hasher);
  hasher.field(uint64_t{decoder_.byte_level} | uint64_t{decoder_.byte_fallback} << 1);
  hasher.field(static_cast<uint64_t>(decoder_.replace.size()));
  for (const auto& [from, to] : decoder_.replace) hasher.field(from).field(to);
  hasher.field(decoder_.strip).field(uint64_t{decoder_.strip_count});
  hasher.field(static_cast<uint64_t>(bos_)).field(static_cast<uint64_t>(eos_));
  hasher.field(uint64_t{add_bos_}).field(static_cast<uint64_t>(stop_.size()));
  for (const int32_t id : stop_) hasher.field(static_cast<uint64_t>(id));
}

}  // namespace blend
