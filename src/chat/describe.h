// What a template has a place for, and how a model writes calls of functions by it.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "model/tokenizer.h"

namespace blend::chat {

class Template;

// How a model writes its calls. Texts are constants.
struct CallForm {
  const char* open = "";                // stands before a call; "": the answer is a call, or none
  const char* close = "";               // stands after it; "": a call ends with the answer
  const char* begin = "";               // what an answer begins with that must be a call
  const char* arguments = "arguments";  // the name of that member
  uint32_t id_length = 0;  // ids of calls are so many letters and digits; 0: whatever they are
};

struct Description {
  bool reads_system = false;
  bool reads_tools = false;
  bool reads_tool_calls = false;
  bool reads_documents = false;
  bool reads_generation_prompt = false;
  bool reads_thinking = false;
  CallForm calls;
};

// Whether it reads a system message is seen by rendering one; the other variables and the form of
// the calls are read from its words.
Result<Description> describe(const Template& source, const Tokenizer& tokenizer);
// The same of a template's source, as make_prompt.
Result<Description> describe(std::string_view source, const Tokenizer& tokenizer);
// The form of the calls alone. NOT_FOUND, FORMAT, UNSUPPORTED as make_prompt.
Result<CallForm> call_form(std::string_view source);
CallForm call_form(const Template& source);

}  // namespace blend::chat
