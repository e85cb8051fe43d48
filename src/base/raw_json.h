// Parts of a JSON text as they are written: their order, their numbers and their white space, which
// a tree loses.
#pragma once

#include <string_view>
#include <vector>

namespace blend {

// The value's text, of the last member of this name, which the parser keeps too; "" where there is
// none. In one pass, without recursion. It does not check the JSON: parse it besides.
std::string_view raw_member(std::string_view json, std::string_view name);
// Whether an object or a list is cut somewhere before its end.
bool is_open(std::string_view json);
// The texts of a list's values; empty for other JSON.
std::vector<std::string_view> raw_items(std::string_view json);

}  // namespace blend
