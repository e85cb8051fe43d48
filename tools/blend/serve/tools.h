// `tools`, `tool_choice` and the calls of earlier turns, as OpenAI's API has them.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "json_body.h"

namespace blend_cli::serve {

// The functions that an answer may call.
struct Tools {
  enum class Choice : uint8_t { none, automatic, required };
  Choice choice = Choice::none;
  std::string json;                // the list, for the chat template; "": the model is told of none
  std::vector<std::string> names;  // of the functions
  std::string only;                // the one that a required call must be of; "": any
  bool parallel = true;            // several calls in one answer
};

// What of them a body has, in the order in which it is written: a tree loses it. "": nothing.
struct ToolTexts {
  std::string tools;
};
ToolTexts tool_texts(std::string_view body);

// Throws HttpError (400), which names the member.
Tools read_tools(const Json& body, ToolTexts texts);

// What a message of a body has besides role and content, for blend_chat_message: tool_calls of
// the assistant, tool_call_id and name of a result. `calls`: functions of earlier calls by their
// ids, which a client chooses, to which those of this message are added. `where`: how errors name
// it. Throws HttpError (400).
std::string tool_members(const Json& message, const std::string& where,
                         std::map<std::string, std::string>& calls);

}  // namespace blend_cli::serve
