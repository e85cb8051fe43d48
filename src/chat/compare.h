// Python's == and <, and the order that dicts find names in.
#pragma once

#include <optional>

#include "chat/value.h"

namespace blend::chat {

// UNSUPPORTED: the values are larger than the meter allows.
Result<bool> equal(const Value& a, const Value& b, Meter& meter);
// a < b of numbers, of strings and of lists; nothing where they have no order.
Result<std::optional<bool>> less(const Value& a, const Value& b, Meter& meter);

// Whether a dict may have it as a name, and a set as a member.
bool is_name(const Value& value);
// Below 0, 0 or above 0. Both must be names. Numbers that are equal are one name, as True and 1.
int compare_names(const Value& a, const Value& b);
// Bytes that comparing it may look at.
size_t name_bytes(const Value& name);

}  // namespace blend::chat
