// Search: where a text occurs in others, in a time that grows with their lengths' sum.
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
  // [needle] how many bytes that it begins with it also ends with, up to each of its bytes; empty
  // for a short one, which is compared everywhere.
  std::vector<uint32_t> borders_;
};

}  // namespace blend::chat
