// The steps that a text goes through before byte-pair encoding: those that `tokenizers` calls
// normalizers and pre-tokenizers.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "model/tokenizer/regex.h"
#include "model/tokenizer/unicode.h"

namespace blend {

// Changes a text. A value: its members depend on the kind.
struct NormalizeStep {
  enum class Kind : uint8_t { unicode, replace, prepend };
  Kind kind = Kind::unicode;
  NormalForm form = NormalForm::nfc;  // unicode
  std::optional<Regex> what;          // replace: each match becomes `with`
  std::string with;                   // replace, prepend
};

// `begins`: prepend as well.
Result<std::string> normalize(const std::vector<NormalizeStep>& steps, std::string_view text,
                              bool begins);

// What happens to the text that a pattern matches.
enum class SplitBehavior : uint8_t {
  removed,
  isolated,
  contiguous,            // matches in a row are one piece
  merged_with_previous,  // a match ends the piece before it
  merged_with_next,      // and begins the piece after it
};

// Which pieces get a space in front.
enum class PrependScheme : uint8_t { never, first, always };

// Cuts text into pieces.
struct SplitStep {
  enum class Kind : uint8_t { split, metaspace };
  Kind kind = Kind::split;
  // split: at the matches, or with `invert` at the text between them. Without a pattern nothing is
  // cut (byte-level pre-tokenizers may only prepend).
  std::optional<Regex> at;
  SplitBehavior behavior = SplitBehavior::isolated;
  bool invert = false;
  bool prefix_space =
      false;  // split: a piece that does not begin with a space gets one, before it is cut
  // metaspace: spaces become `replacement`, which also begins pieces as `prepend` says; `cut`: each
  // begins a piece.
  std::string replacement;
  PrependScheme prepend = PrependScheme::never;
  bool cut = false;
};

// A text and the pieces it is cut into, in order and none of them empty.
struct Pieces {
  std::string text;
  std::vector<TextRange> ranges;
};

// `begins`: the text is where the user's text begins. `prefix`: spaces may be put in front.
Status split(const std::vector<SplitStep>& steps, bool begins, bool prefix, Pieces& pieces);

void hash_steps(const std::vector<NormalizeStep>& normalize, const std::vector<SplitStep>& split,
                Sha256Hasher& hasher);

}  // namespace blend
