// The steps around the model of a tokenizer.json: normalizers, pre-tokenizers, decoders and the
// post-processor.
#pragma once

#include "base/json_reader.h"
#include "model/tokenizer/bpe_tokenizer.h"

namespace blend {

// Normalizer, pre-tokenizer and decoder, and whether the model works on bytes. UNSUPPORTED names a
// step that libblend does not know, or does not expect at its position.
Status read_text_steps(const JsonView& root, BpeTokenizerSpec& spec);

// The token that the post-processor puts in front of a text: BOS. Tokens after it (EOS) are not for
// prompts, which go on. Needs spec.tokens.
Status read_post_processor(const JsonView& root, BpeTokenizerSpec& spec);

}  // namespace blend
