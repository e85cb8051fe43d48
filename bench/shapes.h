// Model shapes by name, of random weights, for programs that measure time and not answers.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "support/random_model.h"

namespace blend::bench {

inline test::RandomModelSpec shape_of(const std::string& name, const std::string& dtype) {
  test::RandomModelSpec spec;
  if (name == "135m") {  // SmolLM 135M
    spec.n_layers = 30, spec.d_model = 576, spec.n_heads = 9, spec.n_kv_heads = 3;
    spec.d_ff = 1536, spec.n_vocab = 32000;
  } else if (name == "1b") {  // Llama 3.2 1B; the vocabulary is a quarter of its own
    spec.n_layers = 16, spec.d_model = 2048, spec.n_heads = 32, spec.n_kv_heads = 8;
    spec.d_ff = 8192, spec.n_vocab = 32000;
  } else if (name == "8b") {  // Llama 3 8B; likewise
    spec.n_layers = 32, spec.d_model = 4096, spec.n_heads = 32, spec.n_kv_heads = 8;
    spec.d_ff = 14336, spec.n_vocab = 32000;
  } else if (name == "30m") {  // for a machine that others use too
    spec.n_layers = 16, spec.d_model = 384, spec.n_heads = 6, spec.n_kv_heads = 2;
    spec.d_ff = 1024, spec.n_vocab = 8000;
  } else if (name == "moe") {  // of Qwen3 30B-A3B's proportions: 1.6 G parameters, 0.17 G of a row
    spec.architecture = "qwen3moe";
    spec.n_layers = 8, spec.d_model = 1024, spec.n_heads = 16, spec.n_kv_heads = 2;
    spec.n_experts = 128, spec.n_used = 8, spec.expert_d_ff = 512;
    spec.d_ff = spec.n_used * spec.expert_d_ff, spec.n_vocab = 32000, spec.head_dim = 128;
  } else if (name == "tiny") {  // to see that the program works
    spec.n_layers = 4, spec.d_model = 64, spec.n_heads = 8, spec.n_kv_heads = 2;
    spec.d_ff = 192, spec.n_vocab = 512;
  } else {
    throw std::runtime_error("--shape is one of tiny, 30m, 135m, 1b, 8b, moe");
  }
  if (name != "moe") spec.head_dim = spec.d_model / spec.n_heads;
  spec.tied = true;
  spec.context = 16384;
  if (dtype == "f32" || dtype == "f16" || dtype == "bf16") {
    spec.dtype = dtype == "bf16" ? DType::bf16 : dtype == "f32" ? DType::f32 : DType::f16;
    return spec;
  }
  for (auto type = static_cast<uint8_t>(BlockType::q4_0); type < kBlockTypes; ++type) {
    const auto blocks = static_cast<BlockType>(type);
    if (dtype != block_type_name(blocks)) continue;
    if (spec.d_model % block_elements(blocks) != 0 || spec.d_ff % block_elements(blocks) != 0 ||
        spec.expert_d_ff % block_elements(blocks) != 0) {
      throw std::runtime_error("shape " + name + " has rows that are not whole blocks of " + dtype);
    }
    spec.blocks = {blocks};
    return spec;
  }
  throw std::runtime_error("weights are f32, f16, bf16 or quantized (q8_0, q4_k, ...), not " +
                           dtype);
}

// Ordinary tokens, different for each seed.
inline std::vector<int32_t> random_tokens(size_t n, uint32_t n_vocab, uint64_t seed) {
  test::SplitMix random(seed);
  std::vector<int32_t> out(n);
  for (int32_t& t : out) t = static_cast<int32_t>(259 + random.below(n_vocab - 259));
  return out;
}

}  // namespace blend::bench
