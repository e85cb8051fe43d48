// tokenizer.json, as Hugging Face `tokenizers` writes it: models of kind BPE.
#pragma once

#include <string_view>

#include "base/status.h"
#include "model/tokenizer/bpe_tokenizer.h"

namespace blend {

// The tokenizer that the file describes, its BOS token (and whether a prompt begins with it) from
// the post-processor; eos and stop come from other files. FORMAT names the wrong member,
// UNSUPPORTED the kind of unknown step.
Result<BpeTokenizerSpec> parse_tokenizer_json(std::string_view text);

// The id of the token with this text; -1: none.
int32_t find_token(const BpeTokenizerSpec& spec, std::string_view text);

}  // namespace blend
