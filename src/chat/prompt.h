// A conversation and documents, rendered by a template and tokenized into segments.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/threads/cancel.h"
#include "model/tokenizer.h"
#include "text/prompt.h"

namespace blend::chat {

class Template;

struct Message {
  std::string_view role;
  std::string_view content;
  std::string_view members = {};  // a JSON object of further members; "": none
};

struct Document {
  std::string_view title;
  std::string_view text;
  bool stored = false;  // given by the id of a stored chunk: it has no text here
};

struct PromptOptions {
  bool generation_prompt = true;  // append the opening of the assistant's turn
  bool must_call = false;         // and what an answer begins with that must be a call (CallForm);
                                  // INVALID_ARGUMENT without tools
  std::string_view variables;     // a JSON object of further variables; "": none
  std::string_view tools;         // a JSON list of the functions that the model may call; "": none
  int64_t now = 0;                // seconds since 1970
  const CancelToken* cancel = nullptr;
};

// Control tokens are recognized in the template's own text; in the host's texts they are plain
// text. A document is a chunk of its own and tokenized by itself, also if the template strips white
// space around it. If the template has no place for documents, they stand before the last message
// of a user, with an empty line after each.
//   Tools and their calls likewise become text where the template does not read them (tools.h).
//   Everything before the first text that is not a system message is PREFIX. Everything after the
// last document is QUESTION. The rest is TEXT. A document that the template changes is TEXT too.
//   Time and memory are in proportion to the template and the arguments.
Result<text::Prompt> make_prompt(const Template& source, const Tokenizer& tokenizer,
                                 const std::vector<Message>& messages,
                                 const std::vector<Document>& documents,
                                 const PromptOptions& options);
// The same of a template's source. NOT_FOUND: it is empty. UNSUPPORTED: this build has no templates
// (absent.cpp).
Result<text::Prompt> make_prompt(std::string_view source, const Tokenizer& tokenizer,
                                 const std::vector<Message>& messages,
                                 const std::vector<Document>& documents,
                                 const PromptOptions& options);

}  // namespace blend::chat
