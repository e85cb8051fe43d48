// The tokenizer of the keys `tokenizer.ggml.*`.
#pragma once

#include <memory>

#include "model/gguf_reader.h"
#include "model/tokenizer.h"

namespace blend {

// FORMAT and UNSUPPORTED name the key.
Result<std::unique_ptr<Tokenizer>> read_gguf_tokenizer(const GgufReader& gguf);

}  // namespace blend
