// Tokenizer: text <-> token ids.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/status.h"

namespace blend {

// Immutable; safe for concurrent use.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual uint32_t n_vocab() const = 0;
  virtual int32_t bos() const = 0;  // -1: none
  virtual int32_t eos() const = 0;  // -1: none
  virtual bool add_bos() const = 0;
  // Ends generation: EOS and what the vocabulary marks as end of turn.
  virtual bool is_stop(int32_t token) const = 0;

  // `flags` are BLEND_TOKENIZE_*.
  // UNSUPPORTED where the model's own patterns take too long over this text.
  virtual Result<std::vector<int32_t>> encode(std::string_view text, uint32_t flags) const = 0;
  // The bytes that one token stands for inside a text ("\xE2\x96\x81" already a space); empty for a
  // control token unless BLEND_TOKENIZE_SPECIAL. `token` must be inside the vocabulary.
  virtual std::string piece(int32_t token, uint32_t flags) const = 0;
  virtual Result<std::string> decode(std::span<const int32_t> tokens, uint32_t flags) const = 0;

  // Everything that encode and decode depend on.
  virtual void hash(Sha256Hasher& hasher) const = 0;
};

}  // namespace blend
