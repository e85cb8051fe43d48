// Chunker: cuts documents into chunks of a limited number of tokens.
//
// A document is cut at blank lines and its paragraphs are packed, in order, into chunks of at most
// `max_tokens`. A paragraph that is longer is cut at line and sentence ends, a longer sentence at
// spaces, a longer word between characters. Each paragraph ends with one newline.
//
// A chunk is tokenized as a text of its own (no BOS; the space that SentencePiece puts before a
// text is there), so its ids depend on nothing but its own text: not on what stands before it in
// a prompt, nor on other documents. That is what makes it reusable.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "blend/blend.hpp"
#include "documents.h"

namespace blend_cli {

// Without the characters at its ends that are blank.
std::string_view trimmed(std::string_view text, std::string_view blank = " \t\n\v\f");

using TokenizeFn = std::function<blendpp::Tokens(std::string_view text)>;

struct Chunk {
  size_t document = 0;  // index
  std::string text;
  blendpp::Tokens tokens;  // never empty
};

std::vector<Chunk> split_documents(const std::vector<Document>& documents, size_t max_tokens,
                                   const TokenizeFn& tokenize);

}  // namespace blend_cli
