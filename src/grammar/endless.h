// Schemas whose values would never end.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace blend::grammar {

// Where each value has to contain one more of the same schema, nothing satisfies the schema. Gives
// the path of such a definition that the root uses; an empty path: it is the root. False: there is
// none. For schemas that kept_json_schema() keeps; in time and memory in proportion to them.
bool find_endless(const Json& root, std::vector<std::string>& path);

}  // namespace blend::grammar
