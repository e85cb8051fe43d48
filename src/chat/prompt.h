// A conversation and documents, rendered by a template and tokenized into segments.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "blend/fuse.h"
#include "chat/template.h"
#include "model/tokenizer.h"

namespace blend::chat {

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

// Tokens of one segment.
struct Segment {
  uint32_t kind = 0;  // BLEND_SEGMENT_*
  std::vector<int32_t> tokens;
  size_t stored = SIZE_MAX;  // the index of a stored document, which has no tokens
};

struct Prompt {
  std::string text;  // as rendered; a stored document is an object replacement character
  std::vector<Segment> segments;
  // Before the first document stands no text of the host but what is the same in many prompts.
  bool stable_head = true;
};

// The template's own control tokens are recognized, those in the host's texts are text. A document
// is a chunk of its own, tokenized by itself like any other, whatever white space around it the
// template takes away. Where the template has no place for
// documents they stand before the last message of a user, an empty line after each.
//   What precedes everything but the system message is PREFIX; all after the last document is
// QUESTION; the rest is TEXT. A document that the template changes is TEXT too.
//   What it takes is in proportion to the template and all that is given.
Result<Prompt> make_prompt(const Template& source, const Tokenizer& tokenizer,
                           const std::vector<Message>& messages,
                           const std::vector<Document>& documents, const PromptOptions& options);

}  // namespace blend::chat
