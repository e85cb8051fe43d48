// Functions that an answer may call (--tools), and its calls.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "chat_prompt.h"
#include "serve/tool_calls.h"
#include "serve/tools.h"

namespace blend_cli {

struct FunctionChoice {
  std::string file;
  std::string which = "auto";  // or "required", or a function's name
};
// Needs --chat.
void add_tools(CLI::App& app, FunctionChoice& choice);
void add_tool_choice(CLI::App& app, FunctionChoice& choice);
// The list in the file, for the chat template; "": there is none. Throws CommandError.
std::string read_functions(const FunctionChoice& choice);

// What answers may call. Immutable.
class Functions {
 public:
  // chat.tools: what read_functions gave. Throws CommandError and blendpp::Error.
  Functions(const blendpp::Model& model, const FunctionChoice& choice, const ChatChoice& chat);

  bool must_call() const { return tools_.choice == serve::Tools::Choice::required; }
  // What the prompt becomes, and what the answer must be; null: any text.
  blendpp::Prompt prompt(const blendpp::Model& model, const blendpp::Prompt& asked) const;
  std::unique_ptr<blendpp::Grammar> grammar(const blendpp::Model& model) const;
  // Of one answer; must not outlive this.
  serve::ToolCallReader reader() const { return {form_, tools_.names, must_call()}; }

 private:
  serve::Tools tools_;
  serve::ToolForm form_;
};

// {"name": ..., "arguments": {...}} on one line of ASCII, the members in the model's order. The
// arguments are a text where the answer was cut in them.
std::string call_line(const serve::ToolCall& call);

}  // namespace blend_cli
