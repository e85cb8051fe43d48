#include "eval_html_text.h"

#include <cstddef>

#include "table.h"

namespace blend_cli {
namespace {

constexpr const char* kReplacement = "\xEF\xBF\xBD";  // U+FFFD

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
  // Overlong forms, surrogates, and what lies behind U+10FFFF.
  if ((c == 0xE0u && next < 0xA0u) || (c == 0xEDu && next > 0x9Fu) ||
      (c == 0xF0u && next < 0x90u) || (c == 0xF4u && next > 0x8Fu)) {
    return 0;
  }
  return n;
}

}  // namespace

std::string html_text(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t n = sequence_at(text, i);
    const char c = text[i];
    const bool control =
        n == 1 && c != '\n' && c != '\t' && (byte_at(text, i) < 0x20u || c == 0x7F);
    if (n == 0 || control) {
      out += kReplacement;
    } else if (n > 1) {
      out += text.substr(i, n);
    } else if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (c == '\'') {
      out += "&#39;";
    } else {
      out += c;
    }
    i += n == 0 ? 1 : n;
  }
  return out;
}

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

std::string svg_number(double value) {
  std::string text = format("%.2f", value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

}  // namespace blend_cli
