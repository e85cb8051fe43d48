// Regex: the patterns by which pre-tokenizers cut text, as PCRE2 runs them.
//
// Patterns come from model files, which are never trusted: their length, the steps a match may take
// and the memory it may use are bounded, and PCRE2 keeps its own stack on the heap. They are
// written for Oniguruma (Hugging Face `tokenizers`); constructs with another meaning in PCRE2 are
// translated, or refused.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace blend {

struct TextRange {
  size_t begin = 0;
  size_t end = 0;
  bool operator==(const TextRange&) const = default;
};

// Immutable; safe for concurrent use. Copies share the compiled pattern.
class Regex {
 public:
  // FORMAT: not a regular expression; UNSUPPORTED: one whose meaning here would be another.
  static Result<Regex> compile(std::string_view pattern);
  // A pattern that matches `text` itself.
  static Result<Regex> literal(std::string_view text);

  // The matches from left to right, which do not overlap. `text` must be valid UTF-8. UNSUPPORTED
  // where a match would take more steps or memory than is allowed.
  Status find_all(std::string_view text, std::vector<TextRange>& out) const;

  const std::string& pattern() const { return pattern_; }

 private:
  struct Code;
  Regex() = default;
  static Result<Regex> compile_translated(std::string translated, std::string_view pattern);

  std::string pattern_;  // as given
  std::shared_ptr<const Code> code_;
};

}  // namespace blend
