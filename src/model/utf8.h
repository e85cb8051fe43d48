// UTF-8: where characters end (RFC 3629).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace blend {

// Bytes of the character that `text` (not empty) begins with: 1 to 4; 1 where it begins with a byte
// that starts no valid sequence (overlong forms, surrogates and cut sequences are invalid).
constexpr size_t utf8_length(std::string_view text) {
  const auto at = [&](size_t i) -> uint32_t { return static_cast<uint8_t>(text[i]); };
  const uint32_t lead = at(0);
  const size_t n = lead < 0xc2 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 1;
  if (n == 1 || n > text.size()) return 1;
  // The second byte's range excludes overlong forms, surrogates and code points above U+10FFFF.
  const uint32_t low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  const uint32_t high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  if (at(1) < low || at(1) > high) return 1;
  for (size_t i = 2; i < n; ++i) {
    if ((at(i) & 0xc0) != 0x80) return 1;
  }
  return n;
}

// The first `most` bytes of a text, or fewer: it is cut between characters.
constexpr std::string_view utf8_begin(std::string_view text, size_t most) {
  size_t n = text.size() < most ? text.size() : most;
  while (n > 0 && n < text.size() && (static_cast<uint8_t>(text[n]) & 0xc0) == 0x80) --n;
  return text.substr(0, n);
}

}  // namespace blend
