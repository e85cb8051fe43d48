// Calls of functions in what a model writes: in which form, and which text they are.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace blend_cli::serve {

// How a model writes its calls.
struct ToolForm {
  std::string_view open;       // stands before a call; "": the answer is one call, or none
  std::string_view close;      // stands after it; "": a call ends with the answer
  std::string_view begin;      // what the answer begins with where it must be a call
  std::string_view arguments;  // the name of that member
  bool short_ids = false;      // the template takes ids of nine letters and digits, no others
};

// By the words of the template. A template without a place for tools is told of them in the form of
// Hermes (docs/models.md).
ToolForm tool_form(std::string_view chat_template);

struct ToolCall {
  std::string name;
  std::string arguments;  // JSON as the model wrote it
};

// Finds calls in a text that comes in pieces. Text that may become a call is held back. What is no
// call of a known function stays text.
class ToolCallReader {
 public:
  // names: of the functions; must outlive this. is_call: the text is one call, from its first byte.
  ToolCallReader(const ToolForm& form, const std::vector<std::string>& names, bool is_call)
      : form_(is_call ? ToolForm() : form), names_(names), in_call_(is_call) {}

  // What of it is text for the reader of the answer.
  std::string take(std::string_view piece);
  // The same at the end. is_cut: the answer was not complete; a call's arguments may end anywhere.
  std::string end(bool is_cut);
  // All so far.
  const std::vector<ToolCall>& calls() const { return calls_; }

 private:
  bool read_call(std::string_view text, bool is_cut);
  bool read_calls(std::string_view text, bool is_cut);

  const ToolForm form_;
  const std::vector<std::string>& names_;
  std::vector<ToolCall> calls_;
  std::string held_;
  bool in_call_;
  bool has_begun_ = false;  // some text was shown, so that a call cannot be the whole answer
};

}  // namespace blend_cli::serve
