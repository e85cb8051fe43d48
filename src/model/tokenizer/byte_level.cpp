#include "model/tokenizer/byte_level.h"

#include <array>
#include <cstdint>

#include "model/utf8.h"

namespace blend {
namespace {

constexpr bool prints(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

constexpr uint32_t kFirstMoved = 0x100;
constexpr uint32_t kMoved = 68;  // bytes that do not print

// The bytes that do not print, in order: the i-th is written as U+0100 + i.
constexpr std::array<uint8_t, kMoved> moved_bytes() {
  std::array<uint8_t, kMoved> moved{};
  uint32_t n = 0;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    if (!prints(byte)) moved[n++] = static_cast<uint8_t>(byte);
  }
  return moved;
}
constexpr std::array<uint8_t, kMoved> kMovedBytes = moved_bytes();

}  // namespace

std::optional<std::string> bytes_of_characters(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t n = utf8_length(text.substr(at));
    const auto lead = static_cast<uint8_t>(text[at]);
    uint32_t c = lead;
    if (n == 2) c = (lead & 0x1fu) << 6 | (static_cast<uint8_t>(text[at + 1]) & 0x3fu);
    if (n > 2 || (n == 1 && lead >= 0x80)) return std::nullopt;
    if (c < 256 && prints(c)) {
      out.push_back(static_cast<char>(c));
    } else if (c >= kFirstMoved && c < kFirstMoved + kMoved) {
      out.push_back(static_cast<char>(kMovedBytes[c - kFirstMoved]));
    } else {
      return std::nullopt;
    }
    at += n;
  }
  return out;
}

}  // namespace blend
