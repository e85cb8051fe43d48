// Jinja's grammar, as far as chat templates use it.
#pragma once

#include "chat/lexer.h"
#include "chat/syntax.h"

namespace blend::chat {

struct Syntax {
  Body body;
  bool names_documents = false;  // a variable `documents` is read somewhere
  bool names_tools = false;      // a variable `tools` is read somewhere
  bool names_tool_calls = false;
};

// FORMAT names the line with a syntax error; UNSUPPORTED names a tag that libblend does not have.
Result<Syntax> parse(std::string_view source);

}  // namespace blend::chat
