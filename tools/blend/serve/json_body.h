// A body of JSON, read in time and memory that are linear in its bytes.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "budget.h"

namespace blend_cli::serve {

using Json = nlohmann::json;

// An object. Its memory is charged to `share`, and `body` is freed once it is read. Throws
// HttpError: 400 for what is not JSON or too much of it, 503 where there is no memory.
Json read_json(std::string body, MemoryBudget::Share& share);

}  // namespace blend_cli::serve
