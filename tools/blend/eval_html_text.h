// Text inside HTML and SVG.
#pragma once

#include <string>
#include <string_view>

namespace blend_cli {

// Escaped for content and for quoted attributes. Bytes that are not UTF-8 become U+FFFD, control
// characters a visible stand-in; line ends stay.
std::string html_text(std::string_view text);

// The text of one token as a label: without blanks at its ends, a line end as an arrow, a byte of a
// longer sequence in hexadecimal.
std::string token_label(std::string_view piece);

// A coordinate: two digits behind the point at most, no trailing zeros.
std::string svg_number(double value);

}  // namespace blend_cli
