// StopTexts: finds the first of some texts in a stream of bytes, wherever its pieces end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace blend {

// Holds back bytes that may still become one of them: less than the longest. Not thread-safe.
class StopTexts {
 public:
  // INVALID_ARGUMENT: one is empty.
  static Result<StopTexts> create(const std::vector<std::string>& texts);

  bool empty() const { return texts_.empty(); }

  // Adds bytes and returns those in which no text can begin any more. matched(): the bytes returned
  // so far end where the text begins; of several that end at the same byte the longest counts. Then
  // nothing more may be added.
  std::string push(std::string_view bytes);
  bool matched() const { return matched_; }
  // The bytes held back, released at the end.
  std::string finish();

 private:
  // A text with Knuth, Morris and Pratt's table: how much of the text a mismatch after n bytes
  // leaves matched.
  struct Text {
    std::string bytes;
    std::vector<uint32_t> fall_back;  // [bytes.size() + 1]
    uint32_t n = 0;                   // bytes of it that the stream ends with
  };
  static void add(Text& text, char byte);

  std::vector<Text> texts_;
  std::string held_;
  bool matched_ = false;
};

}  // namespace blend
