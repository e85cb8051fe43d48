// Text from files, stores, servers and models, made unable to steer a terminal. Everything that
// the command prints and did not write itself goes through here: names, labels, paths, messages
// with these in them, and on a terminal the answers. JSON escapes by itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace blend_cli {

// The first character of `text`, and its bytes; 0 bytes where there is none: text that is empty,
// cut inside a character, or not UTF-8.
size_t utf8_character(std::string_view text, char32_t& character);

// Escaped: control characters (of one byte and of two), characters that reverse the direction of
// a line, Unicode's other line ends, and bytes that are not UTF-8.
enum class Keep : uint8_t {
  line,   // "\x1b", "\n", "\u202e": one line comes out
  lines,  // "\n" and tabs stay
};
std::string printable(std::string_view text, Keep keep = Keep::line);

// A text that comes in pieces, which may end inside a character. Used by one thread.
class PrintableStream {
 public:
  std::string add(std::string_view piece);
  std::string finish();  // what a character that was never completed left over

 private:
  std::string rest_;
};

}  // namespace blend_cli
