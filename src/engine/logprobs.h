// Logprobs: how likely tokens were.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace blend {

struct Logprob {
  int32_t token = 0;
  float logprob = 0;  // natural logarithm of the softmax
};

// Of `token`, then of the n likeliest, falling, ties by the lower id; n is at most logits.size().
// logits: [n_vocab], finite.
std::vector<Logprob> logprobs(std::span<const float> logits, int32_t token, uint32_t n);

}  // namespace blend
