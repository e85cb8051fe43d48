#include "text/white_space.h"

#include <cstdint>

namespace blend::text {

size_t space_at(std::string_view text) {
  if (text.empty()) return 0;
  const auto lead = static_cast<uint8_t>(text[0]);
  if ((lead >= 9 && lead <= 13) || (lead >= 28 && lead <= 32)) return 1;
  if (lead < 0x80) return 0;
  for (const std::string_view space :
       {"\xC2\x85", "\xC2\xA0", "\xE1\x9A\x80", "\xE2\x80\xA8", "\xE2\x80\xA9", "\xE2\x80\xAF",
        "\xE2\x81\x9F", "\xE3\x80\x80"}) {
    if (text.starts_with(space)) return space.size();
  }
  // U+2000 to U+200A
  const bool wide = text.starts_with("\xE2\x80") && text.size() > 2;
  return wide && static_cast<uint8_t>(text[2]) >= 0x80 && static_cast<uint8_t>(text[2]) <= 0x8A ? 3
                                                                                                : 0;
}

std::string_view stripped(std::string_view text) {
  while (const size_t n = space_at(text)) text.remove_prefix(n);
  return stripped_right(text);
}

std::string_view stripped_right(std::string_view text) {
  for (size_t end = text.size(); end > 0;) {
    size_t begin = end - 1;
    while (begin > 0 && end - begin < 4 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) {
      --begin;
    }
    if (space_at(text.substr(begin)) != end - begin) break;
    end = begin;
    text = text.substr(0, end);
  }
  return text;
}

}  // namespace blend::text
