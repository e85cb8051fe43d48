#include "engine/generate.h"

#include <algorithm>

namespace blend {

Status generate(Sequence& sequence, const GenerateOptions& options, const TokenFn& fn,
                const Watch& watch, Utf8Stream& text, Generated& generated) {
  generated = {};
  if (sequence.logits().empty()) {
    return {BLEND_E_INVALID_ARGUMENT, "there are no logits to generate from"};
  }
  BLEND_ASSIGN(auto sampler, Sampler::create(options.sampler));
  const Tokenizer& tokenizer = sequence.model().tokenizer();
  // Reported before it is appended: the host shows a token while the next one is computed.
  while (generated.n_tokens < options.max_tokens && sequence.n_rows() < sequence.capacity()) {
    BLEND_RETURN_IF_ERROR(watch.check());
    const int32_t token = sampler.sample(sequence.logits());
    const bool stop = (!options.ignore_eos && tokenizer.is_stop(token)) ||
                      std::find(options.stop_tokens.begin(), options.stop_tokens.end(), token) !=
                          options.stop_tokens.end();
    if (stop) {
      generated.stopped = true;
      return Status::ok();
    }
    ++generated.n_tokens;
    if (fn) {
      if (const int32_t rc = fn(token, text.push(tokenizer.piece(token, 0))); rc != 0) {
        return {BLEND_E_CALLBACK, "the token callback asked to stop", rc};
      }
    }
    BLEND_RETURN_IF_ERROR(sequence.append({&token, 1}, watch));
  }
  return Status::ok();
}

}  // namespace blend
