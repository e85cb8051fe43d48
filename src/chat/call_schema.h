// The JSON schema of one call of a function.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace blend::chat {

// Of an object that has a function's name first, and then `arguments` (CallForm), which satisfy the
// function's parameters. tools: a JSON list of the functions, as PromptOptions has it. function:
// the only one of them that may be called; "": any of them. A reference inside of parameters names
// the same part as before.
//   Arguments are an object: what the parameters refer to, and each of their alternatives, gets the
// type "object" where it says none. So may a part that is used elsewhere too, which then is
// narrower there. Time and memory are in proportion to the list.
//   INVALID_ARGUMENT names what is wrong with the list, or which function's arguments could be no
// object.
Result<std::string> call_schema(std::string_view tools, std::string_view function,
                                std::string_view arguments);

// Where a part of that schema's `$defs` stands in the list.
struct ParametersPlace {
  std::string of;    // "the parameters of the function 'f'"
  std::string path;  // in them: "#", "#/$defs/NAME"
};
ParametersPlace place_of_definition(std::string_view tools, std::string_view definition);

}  // namespace blend::chat
