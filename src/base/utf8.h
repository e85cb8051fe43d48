// Utf8Stream: whole UTF-8 out of bytes that come in pieces cut anywhere.
#pragma once

#include <string>
#include <string_view>

namespace blend {

// Holds an incomplete sequence back until the rest of it comes. Bytes that are not UTF-8 become
// U+FFFD, one for each maximal subpart (Unicode 3.9), so that what comes out is always valid.
// Not thread-safe.
class Utf8Stream {
 public:
  // The characters that `bytes` completes.
  std::string push(std::string_view bytes);
  // At the end: U+FFFD if a sequence was left incomplete.
  std::string finish();

 private:
  std::string pending_;  // at most 3 bytes between calls
};

}  // namespace blend
