// Roles of messages that say how the model is to behave.
#pragma once

#include <string_view>

namespace blend::chat {

inline bool is_system(std::string_view role) { return role == "system" || role == "developer"; }

}  // namespace blend::chat
