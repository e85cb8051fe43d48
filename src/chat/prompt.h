// A conversation and documents, rendered by a template and tokenized into segments.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/cancel.h"
#include "base/status.h"
#include "model/tokenizer.h"
#include "text/prompt.h"

namespace blend::chat {

class Template;

struct Message {
  std::string_view role;
  std::string_view content;
};

struct Document {
  std::string_view title;
  std::string_view text;
  bool stored = false;  // a chunk that is in the store: it has no text
};

struct PromptOptions {
  bool generation_prompt = true;  // the assistant is to speak next
  std::string_view variables;     // a JSON object of further variables; "": none
  int64_t now = 0;                // seconds since 1970
  const CancelToken* cancel = nullptr;
};

// The template's own control tokens are recognized, those in the host's texts are text. A document
// is a chunk of its own, tokenized by itself like any other, whatever white space around it the
// template takes away. Where the template has no place for
// documents they stand before the last message of a user, an empty line after each.
//   What precedes everything but the system message is PREFIX; all after the last document is
// QUESTION; the rest is TEXT. A document that the template changes is TEXT too.
//   What it takes is in proportion to the template and all that is given.
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
