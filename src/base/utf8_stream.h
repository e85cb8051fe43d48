// Utf8Stream: bytes in, whole valid UTF-8 sequences out.
#pragma once

#include <string>
#include <string_view>

namespace blend {

// Tokens may end inside a UTF-8 sequence; hosts want text they can show at once. Not thread-safe.
class Utf8Stream {
 public:
  // Adds bytes and returns the complete sequences so far. Bytes that can no longer become a
  // sequence are replaced by U+FFFD, one per maximal invalid prefix (Unicode 3.9, table 3-7).
  std::string push(std::string_view bytes);
  // What is left at the end: "" or one U+FFFD.
  std::string finish();

 private:
  std::string pending_;  // a proper prefix of one sequence: at most 3 bytes
};

// `text` with U+FFFD for bytes that are not UTF-8: messages contain names of files and members.
std::string valid_utf8(std::string_view text);

}  // namespace blend
