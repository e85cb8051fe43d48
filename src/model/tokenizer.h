// Tokenizer: text <-> token ids.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "blend/model.h"

namespace blend {

// Facts about a text that was put together from several.
struct TextMarks {
  // [begin, end) in bytes, ascending: no control token is recognized in these, nor across their
  // ends, whatever the flags say.
  std::vector<std::pair<size_t, size_t>> plain;
  bool continues = false;  // another text precedes it: no space is put in front

  bool touches_plain(size_t begin, size_t end) const {
    const auto range = std::upper_bound(plain.begin(), plain.end(), begin,
                                        [](size_t at, const auto& r) { return at < r.second; });
    return range != plain.end() && range->first < end;
  }
};

// Immutable; safe for concurrent use.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual uint32_t n_vocab() const = 0;
  virtual int32_t bos() const = 0;  // -1: none
  virtual int32_t eos() const = 0;  // -1: none
  virtual bool add_bos() const = 0;
  // The tokens that stand after a text which is embedded.
  virtual std::span<const int32_t> closing() const = 0;
  // Whether it ends generation: EOS and the vocabulary's end-of-turn tokens.
  virtual bool is_stop(int32_t token) const = 0;

  // `flags` are BLEND_TOKENIZE_*.
  // UNSUPPORTED where the model's own patterns take too long over this text.
  Result<std::vector<int32_t>> encode(std::string_view text, uint32_t flags) const {
    return encode_marked(text, flags, {});
  }
  virtual Result<std::vector<int32_t>> encode_marked(std::string_view text, uint32_t flags,
                                                     const TextMarks& marks) const = 0;
  // The bytes that one token stands for inside a text ("\xE2\x96\x81" already a space); empty for a
  // control token unless BLEND_TOKENIZE_SPECIAL. `token` must be inside the vocabulary.
  virtual std::string piece(int32_t token, uint32_t flags) const = 0;
  virtual Result<std::string> decode(std::span<const int32_t> tokens, uint32_t flags) const = 0;

  // Everything that encode and decode depend on.
  virtual void hash(Sha256Hasher& hasher) const = 0;
};

}  // namespace blend
