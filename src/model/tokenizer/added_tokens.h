// AddedTokens: tokens that are cut out of a text before anything else looks at it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/hash.h"
#include "model/tokenizer.h"

namespace blend {

struct AddedToken {
  std::string text;
  int32_t id = -1;
  bool special = false;      // a control token: found only on request
  bool single_word = false;  // only where no word character is adjacent
  bool lstrip = false;       // swallows the white space before it
  bool rstrip = false;       // and after it
  bool normalized = false;   // looked for in the normalized text
};

// A part of a text: a token, or (-1) text between tokens.
struct TextPart {
  std::string_view text;
  int32_t token = -1;
};

// Immutable once built; safe for concurrent use.
class AddedTokens {
 public:
  // Longer texts make a walk through the trie at each byte expensive.
  static constexpr size_t kMaxText = 1024;

  // Texts are neither empty nor longer than kMaxText; of equal ones the last counts.
  void add(AddedToken token);
  bool empty() const { return tokens_.empty(); }

  // At each position the longest text that begins there; from left to right. `special`: control
  // tokens too; without it they are text, and nothing inside them is a token either (as
  // `tokenizers` does). Parts are never empty.
  // They are also text where `marks` says so.
  void split(std::string_view text, bool special, const TextMarks& marks,
             std::vector<TextPart>& out) const;
  bool has_special() const { return has_special_; }

  void hash(Sha256Hasher& hasher) const;

 private:
  const AddedToken* longest(std::string_view text) const;

  std::vector<AddedToken> tokens_;
  // A trie of bytes: the child of (node, byte), keyed node << 8 | byte; 0 is the root.
  std::unordered_map<uint64_t, uint32_t> edges_;
  std::vector<int32_t> ends_ = {-1};  // [nodes]: index of the token that ends here, or -1
  bool first_bytes_[256] = {};
  bool has_special_ = false;
};

}  // namespace blend
