// Jinja's grammar, as far as chat templates use it.
#pragma once

#include <array>
#include <string_view>

#include "chat/lexer.h"
#include "chat/syntax.h"

namespace blend::chat {

// Variables of which it is asked whether a template reads them.
inline constexpr std::array<std::string_view, 4> kAsked = {
    "documents", "tools", "add_generation_prompt", "enable_thinking"};

struct Syntax {
  Body body;
  std::array<bool, kAsked.size()> reads = {};  // each of them: somewhere
};

// FORMAT names the line with a syntax error; UNSUPPORTED names a tag that libblend does not have.
Result<Syntax> parse(std::string_view source);

}  // namespace blend::chat
