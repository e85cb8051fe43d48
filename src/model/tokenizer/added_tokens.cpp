#include "model/tokenizer/added_tokens.h"

#include <algorithm>

#include "model/tokenizer/unicode.h"

namespace blend {

void AddedTokens::add(AddedToken token) {
  uint32_t node = 0;
  for (const char c : token.text) {
    const uint64_t key = uint64_t{node} << 8 | static_cast<uint8_t>(c);
    const auto next = static_cast<uint32_t>(ends_.size());
    const auto [edge, is_new] = edges_.try_emplace(key, next);
    if (is_new) ends_.push_back(-1);
    node = edge->second;
  }
  has_special_ |= token.special;
  first_bytes_[static_cast<uint8_t>(token.text[0])] = true;
  ends_[node] = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(std::move(token));
}

const AddedToken* AddedTokens::longest(std::string_view text) const {
  int32_t found = -1;
  uint32_t node = 0;
  for (const char c : text) {
    const auto edge = edges_.find(uint64_t{node} << 8 | static_cast<uint8_t>(c));
    if (edge == edges_.end()) break;
    node = edge->second;
    if (ends_[node] >= 0) found = ends_[node];
  }
  return found < 0 ? nullptr : &tokens_[static_cast<size_t>(found)];
}

void AddedTokens::split(std::string_view text, bool special, const TextMarks& marks,
                        std::vector<TextPart>& out) const {
  size_t done = 0;  // text up to here has been emitted
  for (size_t at = 0; at < text.size();) {
    const AddedToken* token =
        first_bytes_[static_cast<uint8_t>(text[at])] ? longest(text.substr(at)) : nullptr;
    if (token == nullptr) {
      ++at;
      continue;
    }
    const size_t end = at + token->text.size();
    const bool alone = !token->single_word || (!ends_with_word_character(text.substr(0, at)) &&
                                               !begins_with_word_character(text.substr(end)));
    if (token->special && special && marks.touches_plain(at, end)) {
      // Inside the host's text it is plain text as a whole; across its end a token of the template
      // may begin.
      at = marks.touches_plain(at, at + 1) && marks.touches_plain(end - 1, end) ? end : at + 1;
      continue;
    }
    // A token before it may have taken part of it as its white space.
    if ((token->special && !special) || !alone || at < done) {
      at = end;
      continue;
    }
    size_t begin = at;
    if (token->lstrip) begin = std::max(at - trailing_white_space(text.substr(0, at)), done);
    if (begin > done) out.push_back({text.substr(done, begin - done), -1});
    done = end;
    if (token->rstrip) done += leading_white_space(text.substr(end));
    out.push_back({text.substr(begin, done - begin), token->id});
    at = end;
  }
  if (done < text.size()) out.push_back({text.substr(done), -1});
}

void AddedTokens::hash(Sha256Hasher& hasher) const {
  hasher.field(static_cast<uint64_t>(tokens_.size()));
  for (const AddedToken& t : tokens_) {
    hasher.field(t.text).field(static_cast<uint64_t>(t.id));
    hasher.field(uint64_t{t.special} | uint64_t{t.single_word} << 1 | uint64_t{t.lstrip} << 2 |
                 uint64_t{t.rstrip} << 3 | uint64_t{t.normalized} << 4);
  }
}

}  // namespace blend
