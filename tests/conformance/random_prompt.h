// Random models and prompts for the property tests. The same seed gives the same case everywhere;
// a failing test names its seed.
#pragma once

#include <cstdint>
#include <vector>

#include "conformance/abi.h"
#include "support/random_model.h"

namespace blend::test {

RandomModelSpec random_spec(SplitMix& rng);

struct RandomPrompt {
  Prompt prompt;
  std::vector<int32_t> chunk_prefix;
};
// 0..8 chunks of 1..60 tokens, some twice, new text between them (sometimes empty), sometimes a
// system prompt in one or two parts in front and a chunk prefix, a question or a text last. At most
// `max_rows` rows.
RandomPrompt random_prompt(SplitMix& rng, uint32_t n_vocab, size_t max_rows);

std::vector<int32_t> random_tokens(SplitMix& rng, uint32_t n_vocab, size_t n);

}  // namespace blend::test
