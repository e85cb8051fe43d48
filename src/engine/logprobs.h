// Logprobs: log probabilities of tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace blend {

struct Logprob {
  int32_t token = 0;
  float logprob = 0;  // natural logarithm of the softmax
};

// First that of `token`, then the n <= logits.size() likeliest, falling, ties by the lower id.
// logits: [n_vocab], finite.
std::vector<Logprob> logprobs(std::span<const float> logits, int32_t token, uint32_t n);

}  // namespace blend
