// A token's text as a label in a picture.
#pragma once

#include <string>
#include <string_view>

namespace blend_cli {

// Without blanks at its ends, a line end as an arrow, a byte of a longer sequence in hexadecimal:
// UTF-8 whatever the token holds.
std::string token_label(std::string_view piece);

}  // namespace blend_cli
