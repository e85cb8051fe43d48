// Jinja's filters and Python's methods on strings. Every byte keeps its origin.
#pragma once

#include <cstdint>
#include <string>

#include "chat/functions.h"

namespace blend::chat {

enum Side : uint8_t { kLeft = 1, kRight = 2, kBoth = 3 };

// `chars`: the characters to remove; null or none: white space.
Result<Value> strip(const Text& text, const Value* chars, Side side, Meter& meter);
// upper, lower, capitalize, title, for ASCII only. A word begins after a character that is not a
// letter; with `jinja_words`, as in Jinja's filter, after white space, '-' and opening brackets.
Result<Value> change_case(const std::string& name, bool jinja_words, const Text& text,
                          Meter& meter);
Result<Value> replace(const Text& text, const CallArguments& given, Meter& meter);
Result<Value> split(const Text& text, const CallArguments& given, bool from_right, Meter& meter);
// startswith, endswith
Result<Value> affix(const Text& text, const CallArguments& given, bool front, Meter& meter);
// str.find: the first occurrence, counted in characters; -1: none.
Result<Value> find_text(const Text& text, const CallArguments& given, Meter& meter);
Result<Value> indent(const Text& text, const CallArguments& given, Meter& meter);

}  // namespace blend::chat
