// The pre-tokenizers of model families whose files name them rather than spell them out (GGUF
// `tokenizer.ggml.pre`).
#pragma once

#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/tokenizer/text_steps.h"

namespace blend {

// GPT-2's, which byte-level pre-tokenizers use unless they are told not to.
inline constexpr const char* kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

struct PreTokenizer {
  std::vector<NormalizeStep> normalize;  // which GGUF files do not name either
  std::vector<SplitStep> split;
  bool ignore_merges = false;
  bool add_bos = false;  // where the file does not say
};

// UNSUPPORTED for a name that is not known here.
Result<PreTokenizer> named_pre_tokenizer(std::string_view name);

}  // namespace blend
