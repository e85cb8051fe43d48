#include "model/tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "model/utf8.h"

namespace blend {
namespace {

using Char = utf8proc_int32_t;

// The character at the start of `text`, which is not empty; -1 for invalid bytes.
Char first_character(std::string_view text) {
  Char c = -1;
  utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(utf8_length(text)), &c);
  return c;
}

// The last character of `text`, which is not empty, and its bytes.
Char last_character(std::string_view text, size_t* bytes) {
  size_t n = 1;
  while (n < 4 && n < text.size() && (static_cast<uint8_t>(text[text.size() - n]) & 0xc0) == 0x80) {
    ++n;
  }
  *bytes = n;
  return first_character(text.substr(text.size() - n));
}

bool is_word(Char c) {
  if (c < 0) return false;
  if (c == 0x200c || c == 0x200d) return true;  // joiners
  switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return false;
  }
}

bool is_space(Char c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

// The categories of Unicode that repr() escapes: characters without a shape of their own.
bool is_shapeless(Char c) {
  switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return c != ' ';
    default:
      return false;
  }
}

void append(Char c, std::string& out) {
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t n = utf8proc_encode_char(c, bytes);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(n));
}

}  // namespace

bool is_printable(std::string_view text, uint32_t& code) {
  const Char c = first_character(text);
  code = static_cast<uint32_t>(c);
  return c < 0 || !is_shapeless(c);
}

bool is_upper_case(std::string_view text) {
  const Char c = first_character(text);
  return c >= 0 && utf8proc_tolower(c) != c;
}

// Three steps rather than utf8proc_map: its ordering of marks takes quadratic time in their number,
// and the text is untrusted.
Result<std::string> normalize_unicode(std::string_view text, NormalForm form) {
  const auto ascii = [](char c) { return static_cast<uint8_t>(c) < 0x80; };
  if (std::all_of(text.begin(), text.end(), ascii)) return std::string(text);

  const bool compat = form == NormalForm::nfkc || form == NormalForm::nfkd;
  const bool compose = form == NormalForm::nfc || form == NormalForm::nfkc;
  const auto decomposition = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE |
                                                            (compat ? UTF8PROC_COMPAT : 0));
  std::vector<Char> chars;
  chars.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const std::string_view rest = text.substr(at);
    Char expanded[32];  // the longest decomposition has 18 characters
    int boundary = 0;
    const utf8proc_ssize_t n = utf8proc_decompose_char(
        first_character(rest), expanded, static_cast<utf8proc_ssize_t>(std::size(expanded)),
        decomposition, &boundary);
    if (n < 0 || n > static_cast<utf8proc_ssize_t>(std::size(expanded))) {
      return make_error(BLEND_E_INTERNAL, "utf8proc cannot decompose the character at byte %zu",
                        at);
    }
    chars.insert(chars.end(), expanded, expanded + n);
    at += utf8_length(rest);
  }

  const auto combining = [](Char c) { return utf8proc_get_property(c)->combining_class; };
  for (auto begin = chars.begin(); begin != chars.end();) {
    if (combining(*begin) == 0) {
      ++begin;
      continue;
    }
    const auto end = std::find_if(begin, chars.end(), [&](Char c) { return combining(c) == 0; });
    std::stable_sort(begin, end, [&](Char a, Char b) { return combining(a) < combining(b); });
    begin = end;
  }

  auto n = static_cast<utf8proc_ssize_t>(chars.size());
  if (compose) {
    n = utf8proc_normalize_utf32(
        chars.data(), n, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    if (n < 0) return make_error(BLEND_E_INTERNAL, "utf8proc cannot compose a text");
  }
  std::string out;
  out.reserve(text.size());
  for (utf8proc_ssize_t i = 0; i < n; ++i) append(chars[static_cast<size_t>(i)], out);
  return out;
}

bool begins_with_word_character(std::string_view text) {
  return !text.empty() && is_word(first_character(text));
}

bool ends_with_word_character(std::string_view text) {
  size_t bytes = 0;
  return !text.empty() && is_word(last_character(text, &bytes));
}

size_t leading_white_space(std::string_view text) {
  size_t at = 0;
  while (at < text.size() && is_space(first_character(text.substr(at)))) {
    at += utf8_length(text.substr(at));
  }
  return at;
}

size_t trailing_white_space(std::string_view text) {
  size_t at = text.size();
  for (size_t bytes = 0; at > 0 && is_space(last_character(text.substr(0, at), &bytes));) {
    at -= bytes;
  }
  return text.size() - at;
}

size_t valid_utf8_prefix(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t n = utf8_length(text.substr(at));
    if (n == 1 && static_cast<uint8_t>(text[at]) >= 0x80) break;
    at += n;
  }
  return at;
}

}  // namespace blend
