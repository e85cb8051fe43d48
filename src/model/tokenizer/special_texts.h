// Properties of tokens known from their texts, for files that do not state them.
#pragma once

#include <algorithm>
#include <string_view>

namespace blend {

// Texts of tokens that end a turn in models whose files do not say so by id.
inline bool ends_turn(std::string_view text) {
  constexpr std::string_view kTexts[] = {"<|eot_id|>",    "<|im_end|>",      "<|end|>",
                                         "<end_of_turn>", "<|endoftext|>",   "<|eom_id|>",
                                         "<EOT>",         "<|end_of_text|>", "<turn|>"};
  return std::find(std::begin(kTexts), std::end(kTexts), text) != std::end(kTexts);
}

// The byte of "<0x41>"; -1 for any other text.
inline int byte_of(std::string_view text) {
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return -1;
  int value = 0;
  for (const char c : text.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

}  // namespace blend
