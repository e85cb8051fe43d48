// In place of all other sources here in a build without chat templates (BLEND_CHAT).
#include "chat/prompt.h"

namespace blend::chat {

Result<text::Prompt> make_prompt(std::string_view, const Tokenizer&, const std::vector<Message>&,
                                 const std::vector<Document>&, const PromptOptions&) {
  return Status{
      BLEND_E_UNSUPPORTED,
      "this build has no chat templates: configure with -DBLEND_CHAT=ON, or ask for plain "
      "text"};
}

}  // namespace blend::chat
