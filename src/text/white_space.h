// White space as Python knows it, which is what chat templates strip.
#pragma once

#include <cstddef>
#include <string_view>

namespace blend::text {

// Python's str.isspace, of the character that `text` begins with; 0: none, else its bytes.
size_t space_at(std::string_view text);
// Without the white space at its ends, or at its end.
std::string_view stripped(std::string_view text);
std::string_view stripped_right(std::string_view text);

}  // namespace blend::text
