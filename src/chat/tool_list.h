// The functions in a list of tools, as OpenAI's API has it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace blend::chat {

struct ListedFunction {
  std::string name;
  Json parameters;  // a JSON schema; null: it says none
};

// Of [{"type": "function", "function": {"name": ..., "parameters": ...}}], or of such functions
// alone. INVALID_ARGUMENT names the tool that has no name, or one that no call could have: empty,
// or with a NUL.
Result<std::vector<ListedFunction>> listed_functions(std::string_view tools);

// A name for a message: its first 64 bytes or fewer, which end with a character.
std::string shown_name(std::string_view name);

}  // namespace blend::chat
