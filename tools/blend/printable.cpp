#include "printable.h"

#include "table.h"

namespace blend_cli {
namespace {

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xC0u) == 0x80u; }

// Length that the first byte `c` announces for its character; 0: no character begins with it.
size_t announced(char c) {
  const auto byte = static_cast<unsigned char>(c);
  if (byte < 0x80) return 1;
  if (byte < 0xC2) return 0;
  if (byte < 0xE0) return 2;
  if (byte < 0xF0) return 3;
  return byte < 0xF5 ? 4 : 0;
}

bool is_hidden(char32_t c, Keep keep) {
  if (c == '\n' || c == '\t') return keep == Keep::line;
  if (c < 0x20 || (c >= 0x7F && c < 0xA0)) return true;
  const bool ends_line = c == 0x2028 || c == 0x2029;
  const bool turns = (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
  return ends_line || turns;
}

std::string escaped(char32_t c) {
  if (c == '\n') return "\\n";
  if (c == '\t') return "\\t";
  if (c == '\r') return "\\r";
  return format(c < 0x80 ? "\\x%02x" : "\\u%04x", static_cast<unsigned>(c));
}

}  // namespace

size_t utf8_character(std::string_view text, char32_t& character) {
  if (text.empty()) return 0;
  const size_t n = announced(text[0]);
  if (n == 0 || n > text.size()) return 0;
  char32_t c = static_cast<unsigned char>(text[0]);
  if (n > 1) c &= 0x7Fu >> n;
  for (size_t i = 1; i < n; ++i) {
    if (!continues(text[i])) return 0;
    c = c << 6 | (static_cast<unsigned char>(text[i]) & 0x3Fu);
  }
  const bool too_long = (n == 3 && c < 0x800) || (n == 4 && c < 0x10000);
  if (too_long || (c >= 0xD800 && c < 0xE000) || c > 0x10FFFF) return 0;
  character = c;
  return n;
}

std::string printable(std::string_view text, Keep keep) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    char32_t c = 0;
    const size_t n = utf8_character(text, c);
    if (n == 0) {
      out += format("\\x%02x", static_cast<unsigned>(static_cast<unsigned char>(text[0])));
    } else if (is_hidden(c, keep)) {
      out += escaped(c);
    } else {
      out += text.substr(0, n);
    }
    text.remove_prefix(n == 0 ? 1 : n);
  }
  return out;
}

std::string PrintableStream::add(std::string_view piece) {
  rest_ += piece;
  size_t whole = rest_.size();
  // The last character waits for the bytes that it announces.
  for (size_t back = 1; back <= 3 && back <= rest_.size(); ++back) {
    const char c = rest_[rest_.size() - back];
    if (continues(c)) continue;
    if (announced(c) > back) whole -= back;
    break;
  }
  std::string out = printable(std::string_view(rest_).substr(0, whole), Keep::lines);
  rest_.erase(0, whole);
  return out;
}

std::string PrintableStream::finish() {
  std::string out = printable(rest_, Keep::lines);
  rest_.clear();
  return out;
}

}  // namespace blend_cli
