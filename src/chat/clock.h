// Dates for templates.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace blend::chat {

// strftime in English, whatever the process's locale, for the local time `seconds` after 1970.
// UNSUPPORTED names a conversion that is not supported.
Result<std::string> format_time(std::string_view format, int64_t seconds);

}  // namespace blend::chat
