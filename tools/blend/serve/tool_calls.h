// Calls of functions in what a model writes: in which form, and which text they are.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "blend/blend.hpp"

namespace blend_cli::serve {

// How a model writes its calls, by the chat template in use.
struct ToolForm {
  blendpp::TemplateInfo info;
  int32_t open_token = -1;  // the control token that stands before a call; -1: a text does, or none
};
// "": the model's own template.
ToolForm tool_form(const blendpp::Model& model, const std::string& template_source);
// What the prompt becomes if the answer must be a call.
blendpp::Prompt call_prompt(const blendpp::Model& model, const ToolForm& form,
                            const blendpp::Prompt& prompt);

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
      : open_(is_call ? "" : form.info.call_open),
        close_(is_call ? "" : form.info.call_close),
        open_token_(form.open_token),
        names_(names),
        in_call_(is_call) {}

  // What of it is text for the reader of the answer. id: the piece's token; -1: none.
  std::string take(int32_t id, std::string_view piece);
  // The same at the end. is_cut: the answer was not complete; a call's arguments may end anywhere.
  std::string end(bool is_cut);
  // All so far.
  const std::vector<ToolCall>& calls() const { return calls_; }

 private:
  std::string take_text(std::string_view piece);
  bool read_call(std::string_view text, bool is_cut);
  bool read_calls(std::string_view text, bool is_cut);

  const std::string_view open_, close_;
  const int32_t open_token_;
  const std::vector<std::string>& names_;
  std::vector<ToolCall> calls_;
  std::string held_;
  bool in_call_;
  bool has_begun_ = false;  // some text was shown, so that a call cannot be the whole answer
};

}  // namespace blend_cli::serve
