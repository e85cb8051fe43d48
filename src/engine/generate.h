// Generate: sample, report, append, until a stop token or the budget's end.
#pragma once

#include <functional>
#include <vector>

#include "base/utf8_stream.h"
#include "engine/sampler.h"
#include "engine/sequence.h"

namespace blend {

struct GenerateOptions {
  uint32_t max_tokens = 128;
  bool ignore_eos = false;
  std::vector<int32_t> stop_tokens;
  SamplerOptions sampler;
};

struct Generated {
  size_t n_tokens = 0;
  bool stopped = false;  // by a stop token
};

// `text`: the whole UTF-8 sequences that the token completed; bytes that cannot become one are
// U+FFFD. Non-zero stops with CALLBACK.
using TokenFn = std::function<int32_t(int32_t token, const std::string& text)>;

// `generated` is right on failure too: the tokens reported; the last of them is then not in the
// sequence yet.
// `text` holds a sequence that the last token left open, for the call that continues.
Status generate(Sequence& sequence, const GenerateOptions& options, const TokenFn& fn,
                const Watch& watch, Utf8Stream& text, Generated& generated);

}  // namespace blend
