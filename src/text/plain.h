// Documents and a question without a chat template: plain text, tokenized into segments.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/threads/cancel.h"
#include "model/tokenizer.h"
#include "text/prompt.h"

namespace blend::text {

struct PlainOptions {
  std::string_view system;
  std::string_view question_template;  // with {question} in it; "": the default
  bool special = false;                // control tokens are recognized in these two texts only
  const CancelToken* cancel = nullptr;
};

// Replaces every {question} of the template by the question. INVALID_ARGUMENT: there is none.
Result<std::string> put_question(std::string_view question_template, std::string_view question);

// BOS, if the model expects it, and the system text are PREFIX, each document is a CHUNK, the
// question in its template is QUESTION. Each is tokenized by itself.
Result<Prompt> make_plain_prompt(const Tokenizer& tokenizer,
                                 const std::vector<std::string>& documents,
                                 std::string_view question, const PlainOptions& options);

}  // namespace blend::text
