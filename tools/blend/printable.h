// What files, stores, servers and models say, as text that cannot steer a terminal. Everything that
// the command prints and did not make up itself goes through here: names, labels, paths, messages
// that name them, and on a terminal the answers. JSON escapes by itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace blend_cli {

// The character that `text` begins with, and its bytes; 0 bytes where it begins with none: text
// that is empty, cut inside a character, or no UTF-8.
size_t utf8_character(std::string_view text, char32_t& character);

// Escaped: control characters (of one byte and of two), what turns the order of a line round, the
// other ends of lines that Unicode has, and bytes that are no UTF-8.
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
