// Python's operators on numbers, strings and lists.
#pragma once

#include <string>

#include "chat/value.h"

namespace blend::chat {

// a op b, where op is one of + - * / // % ** ~. UNSUPPORTED: the result is a number that does not
// fit into 64 bits.
Result<Value> combine(const std::string& op, const Value& a, const Value& b, Meter& meter);
// -value, or +value.
Result<Value> signed_value(const Value& value, bool minus);

}  // namespace blend::chat
