// Python's == and <, and the order in which a dict looks up names.
#pragma once

#include <optional>

#include "chat/value.h"

namespace blend::chat {

// UNSUPPORTED: the values are larger than the meter allows.
Result<bool> equal(const Value& a, const Value& b, Meter& meter);
// a < b for numbers, strings and lists; nothing if they have no order.
Result<std::optional<bool>> less(const Value& a, const Value& b, Meter& meter);

// Whether the value may be a name in a dict.
bool is_name(const Value& value);
// Below 0, 0 or above 0. Both must be names. Equal numbers are the same name, as True and 1 are.
int compare_names(const Value& a, const Value& b);
// Number of bytes that a comparison with it may read.
size_t name_bytes(const Value& name);

}  // namespace blend::chat
