// StopTexts: where a stream of bytes first has one of some texts, wherever its pieces end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace blend {

// Holds back what may still become one of them: less than the longest. Not thread-safe.
class StopTexts {
 public:
  // INVALID_ARGUMENT: one is empty.
  static Result<StopTexts> create(const std::vector<std::string>& texts);

  bool empty() const { return texts_.empty(); }

  // Adds bytes and gives those that no text can begin in any more. matched(): the bytes given so
  // far end where the text begins; of several that end at the same byte the longest counts. Then
  // nothing more is to be added.
  std::string push(std::string_view bytes);
  bool matched() const { return matched_; }
  // What is held back, which the end lets go.
  std::string finish();

 private:
  // A text with Knuth, Morris and Pratt's table: how much of the text a mismatch behind n bytes
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
