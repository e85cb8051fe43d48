// Functions that the model may call, and its calls, in the values of a template.
//
// A template that has no place for them gets them as text, in the form of Hermes 2 Pro, which Qwen
// uses too and which other servers take where they know nothing better.
#pragma once

#include <string_view>
#include <vector>

#include "chat/meter.h"
#include "chat/value.h"

namespace blend::chat {

// A message on its way into the template.
struct Turn {
  std::string_view role;
  Text content;
  Dict members;  // besides role and content
};

// The functions: a JSON list of objects. "": none.
Result<Value> read_tools(std::string_view json);

// A message's further members: a JSON object without role and content; "": none. Arguments of calls
// that are a text of a JSON object, as OpenAI's API has them, become that object, as templates
// expect it.
Result<Dict> read_members(std::string_view json);

// Where the template does not read `tools`: a text at the end of the system message that the turns
// begin with. If they do not, one is added.
Status tell_tools(const Value& tools, std::vector<Turn>& turns, Meter& meter);
// Whether a rendered prompt has that text: a template may leave system messages out too.
bool tells_tools(std::string_view prompt);

// Where the template does not read `tool_calls`: calls as text of the assistant, and results of the
// role "tool" as text of the user, those of one turn in one message.
Status tell_calls(std::vector<Turn>& turns, Meter& meter);

}  // namespace blend::chat
