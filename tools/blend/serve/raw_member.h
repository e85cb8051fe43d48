// A member of a JSON object as it is written: a schema's order of members is that of the answer,
// and a tree of them loses it.
#pragma once

#include <string_view>
#include <vector>

namespace blend_cli::serve {

// The value's text, of the last member of this name, which the parser keeps too; "": there is none,
// or `json` is no object. In one pass, without recursion. What is no JSON gives some text: it must
// be parsed besides.
std::string_view raw_member(std::string_view json, std::string_view name);
// Whether an object or a list is cut somewhere before its end.
bool is_open(std::string_view json);
// The texts of a list's values; none: `json` is no list, or an empty one.
std::vector<std::string_view> raw_items(std::string_view json);

}  // namespace blend_cli::serve
