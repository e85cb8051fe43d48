// A document's bytes as text. Encodings are not guessed: a wrong guess makes chunks of words that
// nobody wrote.
#include <cstdint>

#include "documents.h"
#include "printable.h"
#include "table.h"

namespace blend_cli {
namespace {

void append(char32_t c, std::string& out) {
  const auto part = [&](unsigned shift, unsigned mark, unsigned mask) {
    out += static_cast<char>(mark | (static_cast<unsigned>(c) >> shift & mask));
  };
  if (c < 0x80) {
    part(0, 0, 0x7F);
  } else if (c < 0x800) {
    part(6, 0xC0, 0x1F);
  } else if (c < 0x10000) {
    part(12, 0xE0, 0x0F);
  } else {
    part(18, 0xF0, 0x07);
  }
  if (c >= 0x10000) part(12, 0x80, 0x3F);
  if (c >= 0x800) part(6, 0x80, 0x3F);
  if (c >= 0x80) part(0, 0x80, 0x3F);
}

// `bytes` after the mark.
bool decode_utf16(std::string_view bytes, bool little, std::string& text, std::string& why) {
  const auto unit = [&](size_t at) {
    const auto low = static_cast<unsigned char>(bytes[at + (little ? 0 : 1)]);
    const auto high = static_cast<unsigned char>(bytes[at + (little ? 1 : 0)]);
    return static_cast<char32_t>(high << 8 | low);
  };
  if (bytes.size() % 2 != 0) {
    why = "it begins as UTF-16 and has half a character at its end";
    return false;
  }
  for (size_t at = 0; at < bytes.size(); at += 2) {
    char32_t c = unit(at);
    if (c >= 0xD800 && c < 0xE000) {
      const char32_t second = c < 0xDC00 && at + 4 <= bytes.size() ? unit(at + 2) : 0;
      if (second < 0xDC00 || second >= 0xE000) {
        why = format("it begins as UTF-16 and is invalid at byte %zu", at + 2);
        return false;
      }
      c = 0x10000 + ((c - 0xD800) << 10) + (second - 0xDC00);
      at += 2;
    }
    append(c, text);
  }
  return true;
}

bool check_text(std::string_view text, std::string& why) {
  for (size_t at = 0; at < text.size();) {
    char32_t c = 0;
    const size_t n = utf8_character(text.substr(at), c);
    if (n == 0) {
      why = format("byte %zu is not UTF-8; iconv -f ISO-8859-1 -t UTF-8 converts a text in Latin-1",
                   at);
      return false;
    }
    if (c == 0) {
      why = format(
          "byte %zu is NUL, which no text has; UTF-16 is read where it begins with a byte "
          "order mark",
          at);
      return false;
    }
    at += n;
  }
  return true;
}

// Line ends of any system become "\n".
std::string with_newlines(const std::string& raw) {
  std::string text;
  text.reserve(raw.size());
  for (size_t i = 0; i < raw.size(); ++i) {
    if (raw[i] != '\r') {
      text += raw[i];
    } else if (i + 1 == raw.size() || raw[i + 1] != '\n') {
      text += '\n';
    }
  }
  return text;
}

}  // namespace

bool decode_document(std::string_view bytes, std::string& text, std::string& why) {
  std::string raw;
  if (bytes.substr(0, 4) == std::string_view("\xFF\xFE\0\0", 4) ||
      bytes.substr(0, 4) == std::string_view("\0\0\xFE\xFF", 4)) {
    why = "it is UTF-32; iconv -f UTF-32 -t UTF-8 converts it";
    return false;
  }
  const std::string_view mark = bytes.substr(0, 2);
  if (mark == "\xFF\xFE" || mark == "\xFE\xFF") {
    if (!decode_utf16(bytes.substr(2), mark[0] == '\xFF', raw, why)) return false;
  } else {
    raw = bytes.substr(bytes.substr(0, 3) == "\xEF\xBB\xBF" ? 3 : 0);
  }
  if (!check_text(raw, why)) return false;
  text = with_newlines(raw);
  return true;
}

}  // namespace blend_cli
