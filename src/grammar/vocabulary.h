// GrammarVocabulary: the tokens of a tokenizer as grammars see them, shared by all of them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/tokenizer.h"

namespace blend {

namespace xgrammar_glue {
struct Vocabulary;
}

// Immutable; safe for concurrent use.
class GrammarVocabulary {
 public:
  // Takes about ten times as many bytes as the tokens' texts have.
  // UNSUPPORTED where grammars are left out of the build (absent.cpp).
  static Result<std::shared_ptr<const GrammarVocabulary>> create(const Tokenizer& tokenizer);
  ~GrammarVocabulary();
  GrammarVocabulary(const GrammarVocabulary&) = delete;
  GrammarVocabulary& operator=(const GrammarVocabulary&) = delete;

  // Vocabularies with the same one have the same tokens.
  const Sha256& fingerprint() const { return fingerprint_; }
  size_t n_tokens() const { return ends_.size() - 1; }
  // The token's bytes inside a text; "": it never occurs in one.
  std::string_view piece(size_t token) const {
    return std::string_view(bytes_).substr(ends_[token], ends_[token + 1] - ends_[token]);
  }

  // Sets of tokens, a bit each: [words()].
  size_t words() const { return stops_.size(); }
  std::span<const uint32_t> stops() const { return stops_; }
  // Those that may stand where a character begins, in a text and in JSON (text_rules.h).
  std::span<const uint32_t> in_text() const { return in_text_; }
  std::span<const uint32_t> in_json() const { return in_json_; }

  const xgrammar_glue::Vocabulary& glue() const { return *glue_; }

 private:
  GrammarVocabulary() = default;

  Sha256 fingerprint_{};
  std::string bytes_;           // of all pieces
  std::vector<uint32_t> ends_;  // [n_tokens + 1]: where each begins, and the last one ends
  std::vector<uint32_t> stops_, in_text_, in_json_;
  xgrammar_glue::Vocabulary* glue_ = nullptr;
};

}  // namespace blend
