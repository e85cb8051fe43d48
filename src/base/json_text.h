// A Json tree as text again.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"

namespace blend {

void write_json_string(std::string_view text, std::string& out);
enum class LargeNumbers : uint8_t {
  refused,  // whole numbers beyond 64 bits
  nearest,  // they become those of the nearest double
};
// Appends the value. False: it holds a number that is refused, or one that is not finite.
bool write_json(const Json& value, std::string& out, LargeNumbers large = LargeNumbers::refused);

}  // namespace blend
