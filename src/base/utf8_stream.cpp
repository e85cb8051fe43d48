#include "base/utf8_stream.h"

#include <cstddef>
#include <cstdint>

namespace blend {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

enum class Match { whole, partial, bad };

// Looks at the sequence that starts at s[0]; `n` is its length (whole), or how many bytes of it are
// valid (partial: all of s; bad: at least 1 to skip).
Match match(std::string_view s, size_t& n) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(s[i]); };
  const uint8_t lead = byte(0);
  n = 1;
  size_t length = 0;
  uint8_t low = 0x80, high = 0xBF;  // of the second byte
  if (lead < 0x80) return Match::whole;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;   // overlong
    if (lead == 0xED) high = 0x9F;  // surrogates
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;   // overlong
    if (lead == 0xF4) high = 0x8F;  // past U+10FFFF
  } else {
    return Match::bad;
  }
  for (; n < length; ++n) {
    if (n == s.size()) return Match::partial;
    if (byte(n) < low || byte(n) > high) return Match::bad;
    low = 0x80;
    high = 0xBF;
  }
  return Match::whole;
}

}  // namespace

std::string Utf8Stream::push(std::string_view bytes) {
  pending_.append(bytes);
  std::string out;
  size_t at = 0;
  while (at < pending_.size()) {
    size_t n = 0;
    const std::string_view rest = std::string_view(pending_).substr(at);
    const Match m = match(rest, n);
    if (m == Match::partial) break;
    out.append(m == Match::whole ? rest.substr(0, n) : kReplacement);
    at += n;
  }
  pending_.erase(0, at);
  return out;
}

std::string Utf8Stream::finish() {
  if (pending_.empty()) return {};
  pending_.clear();
  return std::string(kReplacement);
}

std::string valid_utf8(std::string_view text) {
  Utf8Stream stream;
  std::string out = stream.push(text);
  return out + stream.finish();
}

}  // namespace blend
