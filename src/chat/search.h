// Search: finds a text in others, in time linear in the sum of their lengths.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "chat/meter.h"

namespace blend::chat {

class Search {
 public:
  // `needle` must be valid as long as this is used, and not be empty.
  static Result<Search> of(std::string_view needle, Meter& meter);

  // The first occurrence in `text` from `from` on; npos: none.
  Result<size_t> find(std::string_view text, size_t from, Meter& meter) const;

 private:
  explicit Search(std::string_view needle) : needle_(needle) {}

  std::string_view needle_;
  // [needle] for each prefix of the needle the length of its longest border (a proper prefix that
  // is also a suffix). Empty for a short needle, which is compared at every position.
  std::vector<uint32_t> borders_;
};

}  // namespace blend::chat
