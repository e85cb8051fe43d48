#include "eval/token_label.h"

#include <cstddef>

#include "table.h"

namespace blend_cli {
namespace {

unsigned byte_at(std::string_view text, size_t i) {
  return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
}

// Bytes of the UTF-8 sequence that begins at `i`; 0 if none does.
size_t sequence_at(std::string_view text, size_t i) {
  const unsigned c = byte_at(text, i);
  if (c < 0x80u) return 1;
  const size_t n = c >= 0xC2u && c <= 0xDFu   ? 2
                   : (c & 0xF0u) == 0xE0u     ? 3
                   : c >= 0xF0u && c <= 0xF4u ? 4
                                              : 0;
  for (size_t k = 1; k < n; ++k) {
    if ((byte_at(text, i + k) & 0xC0u) != 0x80u) return 0;
  }
  const unsigned next = byte_at(text, i + 1);
  // Overlong forms, surrogates, and code points above U+10FFFF.
  if ((c == 0xE0u && next < 0xA0u) || (c == 0xEDu && next > 0x9Fu) ||
      (c == 0xF0u && next < 0x90u) || (c == 0xF4u && next > 0x8Fu)) {
    return 0;
  }
  return n;
}

}  // namespace

std::string token_label(std::string_view piece) {
  std::string label;
  for (size_t i = 0; i < piece.size();) {
    const size_t n = sequence_at(piece, i);
    if (n == 0) {
      label += format("\\x%02X", byte_at(piece, i));
    } else if (piece[i] == '\n') {
      label += "\xE2\x86\xB5";  // the arrow of the return key
    } else {
      label += piece.substr(i, n);
    }
    i += n == 0 ? 1 : n;
  }
  const size_t first = label.find_first_not_of(' ');
  if (first == std::string::npos) return "\xE2\x90\xA3";  // an open box: blanks alone
  return label.substr(first, label.find_last_not_of(' ') - first + 1);
}

}  // namespace blend_cli
