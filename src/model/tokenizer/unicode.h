// Unicode functions of tokenizers beyond regular expressions; utf8proc has the tables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace blend {

enum class NormalForm : uint8_t { nfc, nfd, nfkc, nfkd };

// `text`, which must be valid UTF-8, in the normal form (Unicode Standard Annex 15).
Result<std::string> normalize_unicode(std::string_view text, NormalForm form);

// Characters as `tokenizers` counts them to decide whether an added token is a single word:
// letters, marks, decimal digits, connectors (\w), and White_Space (\s).
bool begins_with_word_character(std::string_view text);
bool ends_with_word_character(std::string_view text);
// Bytes of the white space that `text` begins or ends with.
size_t leading_white_space(std::string_view text);
size_t trailing_white_space(std::string_view text);

// Whether Python's repr() leaves the first character of `text` unchanged; `code`: its number.
bool is_printable(std::string_view text, uint32_t& code);

// Whether lower case has another character for the one that `text` begins with.
bool is_upper_case(std::string_view text);

// Bytes of the longest valid UTF-8 that `text` begins with.
size_t valid_utf8_prefix(std::string_view text);

}  // namespace blend
