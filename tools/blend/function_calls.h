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

  bool must_call() const { return which != "auto"; }
};
// Needs --chat.
void add_tools(CLI::App& app, FunctionChoice& choice);
void add_tool_choice(CLI::App& app, FunctionChoice& choice);
// The list in the file, for the chat template; "": there is none. Throws CommandError.
std::string read_functions(const FunctionChoice& choice);

// What answers of a model may call; must not outlive it. Immutable.
class Functions {
 public:
  // chat.tools: what read_functions gave. Throws CommandError and blendpp::Error.
  Functions(const blendpp::Model& model, const FunctionChoice& choice, const ChatChoice& chat);

  // What the answer must be; null: any text.
  std::unique_ptr<blendpp::Grammar> grammar() const;
  // Of one answer.
  blendpp::CallReader reader() const {
    return serve::call_reader(model_, template_source_, tools_);
  }

 private:
  const blendpp::Model& model_;
  serve::Tools tools_;
  std::string template_source_;
};

// {"name": ..., "arguments": {...}} on one line of ASCII, the members in the model's order. The
// arguments are a text where the answer was cut in them.
std::string call_line(const blendpp::CallInfo& call);

}  // namespace blend_cli
