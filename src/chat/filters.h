// Filters that are too long for functions.cpp.
#pragma once

#include <string>

#include "chat/functions.h"

namespace blend::chat {

// int, float
Result<Value> to_number(const std::string& name, const Value& value, const CallArguments& given,
                        Meter& meter);
// sort, dictsort
Result<Value> sort(const std::string& name, const Value& value, const CallArguments& given,
                   Meter& meter);
Result<Value> unique(const Value& value, const CallArguments& given, Meter& meter);
// The members of a dict, each a tuple of name and value.
Result<Value> pairs(const Dict& dict, Meter& meter);

}  // namespace blend::chat
