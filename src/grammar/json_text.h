// A Json tree as text again.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace blend::grammar {

void write_json_string(std::string_view text, std::string& out);
// False: it holds a number that a double does not have exactly, or that is not finite.
bool write_json(const Json& value, std::string& out);

}  // namespace blend::grammar
