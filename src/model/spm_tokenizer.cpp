#include "model/spm_tokenizer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>
#include <queue>

#include "model/tokenizer/special_texts.h"
#include "model/tokenizer/unicode.h"
#include "model/utf8.h"

namespace blend {
namespace {

constexpr std::string_view kSpace = "\xe2\x96\x81";  // U+2581, SentencePiece's visible space

void append_unescaped(std::string_view text, std::string& out) {
  for (size_t at = 0; at < text.size();) {
    if (text.compare(at, kSpace.size(), kSpace) == 0) {
      out.push_back(' ');
      at += kSpace.size();
    } else {
      out.push_back(text[at++]);
    }
  }
}

}  // namespace

// A part of a text that is either plain or one special token.
struct SpmTokenizer::Fragment {
  std::string_view text;
  int32_t token = -1;  // -1: plain
};

Result<std::unique_ptr<SpmTokenizer>> SpmTokenizer::create(SpmVocab vocab) {
  const size_t n = vocab.tokens.size();
  if (n == 0) return make_error(BLEND_E_FORMAT, "the vocabulary is empty");
  if (n > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    return make_error(BLEND_E_FORMAT, "the vocabulary has %zu tokens; ids have 31 bits", n);
  }
  if (vocab.scores.size() != n) {
    return make_error(BLEND_E_FORMAT, "the vocabulary has %zu tokens and %zu scores", n,
                      vocab.scores.size());
  }
  if (!vocab.types.empty() && vocab.types.size() != n) {
    return make_error(BLEND_E_FORMAT, "the vocabulary has %zu tokens and %zu token types", n,
                      vocab.types.size());
  }
  const auto check = [&](const char* what, int32_t id) -> Status {
    if (id >= -1 && id < static_cast<int64_t>(n)) return Status::ok();
    return make_error(BLEND_E_FORMAT, "the %s token's id %d is outside the vocabulary of %zu", what,
                      id, n);
  };
  BLEND_RETURN_IF_ERROR(check("BOS", vocab.bos));
  BLEND_RETURN_IF_ERROR(check("EOS", vocab.eos));
  BLEND_RETURN_IF_ERROR(check("unknown", vocab.unk));
  for (const int32_t id : vocab.stop) BLEND_RETURN_IF_ERROR(check("end-of-turn", id));
  for (float& score : vocab.scores) {
    // NaN would break the ordering.
    if (std::isnan(score)) score = -std::numeric_limits<float>::infinity();
  }
  std::unique_ptr<SpmTokenizer> tokenizer(new SpmTokenizer(std::move(vocab)));
  if (tokenizer->vocab_.types.empty()) tokenizer->guess_types();
  tokenizer->index();
  return tokenizer;
}

void SpmTokenizer::guess_types() {
  vocab_.types.assign(vocab_.tokens.size(), static_cast<int32_t>(TokenType::normal));
  for (size_t i = 0; i < vocab_.tokens.size(); ++i) {
    if (byte_of(vocab_.tokens[i]) >= 0) vocab_.types[i] = static_cast<int32_t>(TokenType::byte);
  }
  const auto set = [&](int32_t id, TokenType type) {
    if (id >= 0) vocab_.types[static_cast<size_t>(id)] = static_cast<int32_t>(type);
  };
  set(vocab_.unk, TokenType::unknown);
  set(vocab_.bos, TokenType::control);
  set(vocab_.eos, TokenType::control);
}

// As in llama.cpp, a token stands for a byte by its text, whatever its type; those of the type
// `byte` take precedence.
void SpmTokenizer::index_bytes() {
  bytes_.fill(-1);
  const auto n = static_cast<int32_t>(vocab_.tokens.size());
  for (const bool typed : {false, true}) {
    for (int32_t id = 0; id < n; ++id) {
      if ((type(id) == TokenType::byte) != typed) continue;
      const int b = byte_of(vocab_.tokens[static_cast<size_t>(id)]);
      if (b >= 0) bytes_[static_cast<size_t>(b)] = id;
    }
  }
}

int SpmTokenizer::byte_of_token(int32_t id) const {
  const int b = byte_of(vocab_.tokens[static_cast<size_t>(id)]);
  return b >= 0 && bytes_[static_cast<size_t>(b)] == id ? b : -1;
}

void SpmTokenizer::index() {
  index_bytes();
  const auto n = static_cast<int32_t>(vocab_.tokens.size());
  for (int32_t id = 0; id < n; ++id) {
    const std::string& text = vocab_.tokens[static_cast<size_t>(id)];
    if (text.empty()) continue;  // empty: never produced
    switch (type(id)) {
      case TokenType::unknown:
      case TokenType::control:
        special_.push_back(id);
        break;
      case TokenType::user_defined:
        special_.push_back(id);
        [[fallthrough]];
      case TokenType::normal:
      case TokenType::unused:
        if (byte_of_token(id) >= 0) break;
        pieces_[text] = id;  // of equal texts the last one wins, as in llama.cpp
        longest_piece_ = std::max(longest_piece_, text.size());
        break;
      default:
        break;
    }
    if (type(id) == TokenType::control || type(id) == TokenType::user_defined) {
      if (ends_turn(text)) vocab_.stop.push_back(id);
    }
  }
  std::stable_sort(special_.begin(), special_.end(), [&](int32_t a, int32_t b) {
    return vocab_.tokens[static_cast<size_t>(a)].size() >
           vocab_.tokens[static_cast<size_t>(b)].size();
  });
  std::sort(vocab_.stop.begin(), vocab_.stop.end());
}

bool SpmTokenizer::is_stop(int32_t token) const {
  return token >= 0 &&
         (token == vocab_.eos || std::binary_search(vocab_.stop.begin(), vocab_.stop.end(), token));
}

int32_t SpmTokenizer::find(std::string_view piece) const {
  if (piece.size() > longest_piece_) return -1;
  const auto it = pieces_.find(piece);
  return it == pieces_.end() ? -1 : it->second;
}

Result<std::vector<int32_t>> SpmTokenizer::encode_marked(std::string_view text, uint32_t flags,
                                                         const TextMarks& marks) const {
  std::vector<int32_t> out;
  const bool bos = vocab_.add_bos && vocab_.bos >= 0;
  if (bos && (flags & BLEND_TOKENIZE_BOS) != 0) out.push_back(vocab_.bos);
  // The text and every part of it after a special token begin a word of their own.
  bool begins = !marks.continues;
  const bool prefix = vocab_.add_space_prefix && (flags & BLEND_TOKENIZE_RAW) == 0;
  for (const Fragment& f : split_special(text, (flags & BLEND_TOKENIZE_SPECIAL) != 0, marks)) {
    if (f.token >= 0) {
      out.push_back(f.token);
    } else {
      encode_plain(f.text, prefix && begins, out);
    }
    begins = f.token >= 0;
  }
  return out;
}

bool SpmTokenizer::strips_right(int32_t token) const {
  if (!vocab_.strips_right) return false;
  const std::string_view text = vocab_.tokens[static_cast<size_t>(token)];
  return text != "<unk>" && text != "<s>" && text != "<|endoftext|>";
}

// Longer special tokens are cut out of the whole text before shorter ones are looked for. `all`:
// control and unknown tokens too, not only user-defined ones.
std::vector<SpmTokenizer::Fragment> SpmTokenizer::split_special(std::string_view text, bool all,
                                                                const TextMarks& marks) const {
  std::vector<Fragment> fragments;
  if (text.empty()) return fragments;
  fragments.push_back({text, -1});
  std::vector<Fragment> next;
  for (const int32_t id : special_) {
    const bool control = type(id) != TokenType::user_defined;
    if (!all && control) continue;
    const std::string_view name = vocab_.tokens[static_cast<size_t>(id)];
    if (text.find(name) == std::string_view::npos) continue;
    const bool strips = strips_right(id);
    next.clear();
    for (const Fragment& f : fragments) {
      if (f.token >= 0) {
        next.push_back(f);
        continue;
      }
      size_t begin = 0;
      const auto offset = static_cast<size_t>(f.text.data() - text.data());
      for (size_t at = 0;
           (at = f.text.find(name, std::max(at, begin))) != std::string_view::npos;) {
        if (control && marks.touches_plain(offset + at, offset + at + name.size())) {
          ++at;
          continue;
        }
        if (at > begin) next.push_back({f.text.substr(begin, at - begin), -1});
        next.push_back({name, id});
        begin = at + name.size();
        if (strips) begin += leading_white_space(f.text.substr(begin));
      }
      if (begin < f.text.size()) next.push_back({f.text.substr(begin), -1});
    }
    fragments.swap(next);
  }
  return fragments;
}

// Greedy BPE: of all adjacent pairs whose concatenation is a piece, merge the one with the highest
// score, the leftmost of equals, until none is left. A queue of candidates, of which those that
// refer to symbols merged since are dropped when they come up, makes it O(n log n).
void SpmTokenizer::encode_plain(std::string_view text, bool space_prefix,
                                std::vector<int32_t>& out) const {
  std::string escaped;
  escaped.reserve(text.size() + text.size() / 2 + kSpace.size());
  if (space_prefix) escaped = kSpace;
  for (const char c : text) {
    if (c == ' ') {
      escaped += kSpace;
    } else {
      escaped.push_back(c);
    }
  }

  struct Symbol {
    size_t begin;
    size_t size;  // 0: merged into its left neighbour
    size_t prev;
    size_t next;
  };
  constexpr size_t kNone = std::numeric_limits<size_t>::max();
  std::vector<Symbol> symbols;
  symbols.reserve(escaped.size());
  for (size_t at = 0; at < escaped.size();) {
    const size_t size = utf8_length(std::string_view(escaped).substr(at));
    symbols.push_back({at, size, symbols.size() - 1, symbols.size() + 1});  // prev of 0 is kNone
    at += size;
  }
  if (symbols.empty()) return;
  symbols.back().next = kNone;

  struct Candidate {
    float score;
    size_t left;
    size_t right;
    size_t size;  // of both when it was queued
  };
  const auto worse = [](const Candidate& a, const Candidate& b) {
    return a.score < b.score || (a.score == b.score && a.left > b.left);
  };
  std::priority_queue<Candidate, std::vector<Candidate>, decltype(worse)> queue(worse);
  const auto consider = [&](size_t left, size_t right) {
    if (left == kNone || right == kNone) return;
    const size_t size = symbols[left].size + symbols[right].size;
    const int32_t id = find(std::string_view(escaped).substr(symbols[left].begin, size));
    if (id >= 0) queue.push({vocab_.scores[static_cast<size_t>(id)], left, right, size});
  };
  for (size_t i = 1; i < symbols.size(); ++i) consider(i - 1, i);
  while (!queue.empty()) {
    const Candidate c = queue.top();
    queue.pop();
    Symbol& left = symbols[c.left];
    Symbol& right = symbols[c.right];
    if (left.size == 0 || right.size == 0 || left.size + right.size != c.size) continue;
    left.size = c.size;
    right.size = 0;
    left.next = right.next;
    if (left.next != kNone) symbols[left.next].prev = c.left;
    consider(left.prev, c.left);
    consider(c.left, left.next);
  }
  for (size_t i = 0; i != kNone; i = symbols[i].next) {
    emit(std::string_view(escaped).substr(symbols[i].begin, symbols[i].size), out);
  }
}

// A symbol is a piece or a single other character: then its bytes, or the unknown token where the
// vocabulary lacks one of them.
void SpmTokenizer::emit(std::string_view symbol, std::vector<int32_t>& out) const {
  if (const int32_t id = find(symbol); id >= 0) {
    out.push_back(id);
    return;
  }
  const bool have_bytes = std::all_of(symbol.begin(), symbol.end(),
                                      [&](char c) { return bytes_[static_cast<uint8_t>(c)] >= 0; });
  if (have_bytes) {
    for (const char c : symbol) out.push_back(bytes_[static_cast<uint8_t>(c)]);
  } else if (vocab_.unk >= 0) {
    out.push_back(vocab_.unk);
  }
}

std::string SpmTokenizer::piece(int32_t token, uint32_t flags) const {
  std::string out;
  if (token < 0 || static_cast<size_t>(token) >= vocab_.tokens.size()) return out;
  const std::string& text = vocab_.tokens[static_cast<size_t>(token)];
  if (const int b = byte_of_token(token); b >= 0) return {static_cast<char>(b)};
  switch (type(token)) {
    case TokenType::control:
    case TokenType::unknown:
      if ((flags & BLEND_TOKENIZE_SPECIAL) != 0) out = text;
      break;
    case TokenType::user_defined:
      out = text;
      break;
    case TokenType::byte:
      if (const int b = byte_of(text); b >= 0) out.push_back(static_cast<char>(b));
      break;
    default:
      append_unescaped(text, out);
      break;
  }
  return out;
}

Result<std::string> SpmTokenizer::decode(std::span<const int32_t> tokens, uint32_t flags) const {
  std::string out;
  // The space before the first word was added by encode; BOS and other tokens without text may
  // come before it.
  bool drop_space = vocab_.add_space_prefix && (flags & BLEND_TOKENIZE_RAW) == 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const int32_t token = tokens[i];
    if (token < 0 || static_cast<size_t>(token) >= vocab_.tokens.size()) {
      return make_error(BLEND_E_INVALID_ARGUMENT,
                        "token %d at index %zu is outside the vocabulary of %zu", token, i,
                        vocab_.tokens.size());
    }
    std::string text = piece(token, flags);
    const TokenType t = byte_of_token(token) >= 0 ? TokenType::byte : type(token);
    if (t != TokenType::control && t != TokenType::unknown) {
      if (drop_space && t != TokenType::user_defined && !text.empty() && text[0] == ' ') {
        text.erase(0, 1);
      }
      drop_space = false;
    }
    out += text;
  }
  return out;
}

void SpmTokenizer::hash(Sha256Hasher& hasher) const {
  hasher.field("spm");
  hasher.field(static_cast<uint64_t>(vocab_.tokens.size()));
  for (size_t i = 0; i < vocab_.tokens.size(); ++i) {
    hasher.field(vocab_.tokens[i]);
    hasher.field(uint64_t{std::bit_cast<uint32_t>(vocab_.scores[i])});
    hasher.field(static_cast<uint64_t>(vocab_.types[i]));
  }
  hasher.field(static_cast<uint64_t>(vocab_.bos));
  hasher.field(static_cast<uint64_t>(vocab_.eos));
  hasher.field(static_cast<uint64_t>(vocab_.unk));
  hasher.field(static_cast<uint64_t>(vocab_.stop.size()));
  for (const int32_t id : vocab_.stop) hasher.field(static_cast<uint64_t>(id));
  hasher.field(uint64_t{vocab_.add_bos});
  hasher.field(uint64_t{vocab_.add_space_prefix});
  if (vocab_.strips_right) hasher.field("strips right");
}

}  // namespace blend
