#include "conformance/random_prompt.h"

#include <algorithm>
#include <array>

namespace blend::test {
namespace {

template <typename T, size_t N>
T pick(SplitMix& rng, const std::array<T, N>& choices) {
  return choices[rng.below(N)];
}
bool chance(SplitMix& rng, uint64_t percent) { return rng.below(100) < percent; }

}  // namespace

RandomModelSpec random_spec(SplitMix& rng) {
  RandomModelSpec spec;
  spec.n_layers = static_cast<uint32_t>(1 + rng.below(6));
  spec.d_model = pick(rng, std::array{32u, 48u, 64u, 80u});
  spec.n_kv_heads = pick(rng, std::array{1u, 2u, 3u});
  spec.n_heads = spec.n_kv_heads * pick(rng, std::array{1u, 2u, 4u, 8u});
  spec.head_dim = pick(rng, std::array{8u, 16u, 20u, 32u, 64u});
  spec.rotary_dim = chance(rng, 30) ? spec.head_dim / 2 : 0;
  spec.d_ff = pick(rng, std::array{40u, 96u, 144u});
  spec.n_vocab = pick(rng, std::array{300u, 320u, 401u});
  spec.context = 1024;
  spec.dtype = pick(rng, std::array{DType::f32, DType::f32, DType::f16, DType::bf16});
  spec.tied = chance(rng, 30);
  spec.rope_freq_factors = chance(rng, 30);
  spec.rope_theta = pick(rng, std::array{10000.0, 500000.0});
  // Features of families, but for windows: after the first layer's window a chunk's rows deviate by
  // rounding alone, and the choice among those is arbitrary (families_test.cpp has windows).
  const std::array families = {"llama", "llama", "qwen2", "qwen3", "smollm3", "gemma2", "gemma3"};
  spec.architecture = pick(rng, families);
  if (spec.architecture == std::string("llama")) spec.biases = chance(rng, 30);
  if (chance(rng, 20)) spec.linear_scale = 4;
  if (chance(rng, 20)) spec.yarn_factor = 8;
  spec.seed = rng.next();
  return spec;
}

std::vector<int32_t> random_tokens(SplitMix& rng, uint32_t n_vocab, size_t n) {
  std::vector<int32_t> tokens(n);
  for (int32_t& t : tokens) t = static_cast<int32_t>(rng.below(n_vocab));
  return tokens;
}

RandomPrompt random_prompt(SplitMix& rng, uint32_t n_vocab, size_t max_rows) {
  RandomPrompt out;
  size_t n_rows = 0;
  const auto add = [&](uint32_t kind, std::vector<int32_t> tokens) {
    n_rows += tokens.size();
    out.prompt.push_back({kind, std::move(tokens), false});
  };
  const auto text = [&](uint32_t kind, size_t least, size_t most) {
    add(kind, random_tokens(rng, n_vocab, least + rng.below(most - least + 1)));
  };
  if (chance(rng, 40)) text(BLEND_SEGMENT_PREFIX, 1, 20);
  if (!out.prompt.empty() && chance(rng, 30)) text(BLEND_SEGMENT_PREFIX, 1, 10);
  if (chance(rng, 40)) out.chunk_prefix = random_tokens(rng, n_vocab, 1 + rng.below(5));
  // Then the first chunk after the system prompt is exact.
  if (chance(rng, 30)) out.chunk_prefix = flatten(out.prompt);

  std::vector<std::vector<int32_t>> seen;
  const size_t n_chunks = rng.below(9);
  for (size_t i = 0; i < n_chunks; ++i) {
    if (chance(rng, 20)) text(BLEND_SEGMENT_TEXT, 0, 6);
    std::vector<int32_t> chunk = !seen.empty() && chance(rng, 20)
                                     ? seen[rng.below(seen.size())]
                                     : random_tokens(rng, n_vocab, 1 + rng.below(60));
    if (n_rows + chunk.size() + 16 > max_rows) break;
    seen.push_back(chunk);
    add(BLEND_SEGMENT_CHUNK, std::move(chunk));
  }
  if (chance(rng, 20)) text(BLEND_SEGMENT_TEXT, 0, 4);
  text(chance(rng, 80) ? BLEND_SEGMENT_QUESTION : BLEND_SEGMENT_TEXT, 1, 12);
  return out;
}

}  // namespace blend::test
