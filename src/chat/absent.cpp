// In place of the sources here that render, in a build without chat templates (BLEND_CHAT).
#include "chat/describe.h"
#include "chat/prompt.h"

namespace blend::chat {
namespace {

Status left_out() {
  return {BLEND_E_UNSUPPORTED,
          "this build has no chat templates: configure with -DBLEND_CHAT=ON, or ask for plain "
          "text"};
}

}  // namespace

Result<text::Prompt> make_prompt(std::string_view, const Tokenizer&, const std::vector<Message>&,
                                 const std::vector<Document>&, const PromptOptions&) {
  return left_out();
}

Result<Description> describe(std::string_view, const Tokenizer&) { return left_out(); }

Result<CallForm> call_form(std::string_view) { return left_out(); }

}  // namespace blend::chat
