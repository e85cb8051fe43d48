// Options of a generation, and how it ended.
#ifndef BLEND_CPP_GENERATE_HPP
#define BLEND_CPP_GENERATE_HPP

#include <functional>
#include <string_view>

#include "blend/cpp/detail.hpp"
#include "blend/generate.h"

namespace blendpp {

using TokenFn = std::function<bool(int32_t token, std::string_view text)>;

// The logits of the next token, to be changed; see blend_logits_fn.
using LogitsFn = std::function<bool(Span<float> logits)>;

// For the token that is reported next, then for the likeliest; see blend_logprobs_fn.
using LogprobsFn = std::function<bool(Span<const blend_logprob> logprobs)>;

namespace detail {

inline int32_t on_logits(void* user, float* logits, size_t n_vocab) noexcept {
  return static_cast<Guarded<LogitsFn>*>(user)->call(Span<float>(logits, n_vocab));
}

inline int32_t on_logprobs(void* user, const blend_logprob* logprobs, size_t n) noexcept {
  return static_cast<Guarded<LogprobsFn>*>(user)->call(Span<const blend_logprob>(logprobs, n));
}

}  // namespace detail

struct GenerateOptions : detail::Initialised<blend_generate_options, blend_generate_options_init> {
  LogitsFn on_logits;
  LogprobsFn on_logprobs;  // of every token, if top_logprobs > 0
};

struct Generated {
  size_t n_tokens = 0;
  bool by_stop_token = false;  // ended by EOS, a stop token or a stop text
  bool by_callback = false;    // ended because the callback returned false
};

}  // namespace blendpp

#endif
