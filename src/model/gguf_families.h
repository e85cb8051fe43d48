// What is true of an architecture without being said in its keys.
#pragma once

#include <cstdint>
#include <span>

#include "model/config.h"
#include "model/gguf_experts.h"

namespace blend {

// Properties of an architecture that its keys do not state, as llama.cpp reads the same files.
struct GgufFamily {
  const char* architecture;
  RopeLayout layout = RopeLayout::half_split;
  bool qkv_bias = false;          // always; a llama has biases where the file does
  bool qk_norm_optional = false;  // qk_norm where the file has its weights, else none
  QkNorm qk_norm = QkNorm::none;
  uint32_t nope_every = 0;    // layers n - 1, 2n - 1, ... do not rotate
  uint32_t global_every = 0;  // with a window: layers n - 1, 2n - 1, ... have none; 0: all have it
  bool gemma = false;
  // Default where the file has none (the first files of a Gemma 2 do not).
  uint32_t window = 0;
  double attn_softcap = 0;
  double logit_softcap = 0;
  bool granite = false;       // scales of embedding, results and logits
  bool post_only = false;     // results are normalised, and nothing else
  bool full_is_nope = false;  // with a window: layers without it do not rotate
  bool plain_local = false;   // with a window: scaling is for layers without it
  bool mistral3 = false;      // YaRN's second factor, and Q that grows with its position
  GgufExperts experts = {};
  bool gpt_oss = false;    // sinks, a clamped SwiGLU, a ramp of YaRN with ends that are not rounded
  bool convolves = false;  // layers without KV heads convolve
  // Three of four layers are Gated DeltaNets, the others have a gate beside Q.
  bool delta = false;
  bool by_key_head = false;  // of those: a key head's value heads are neighbours
  bool mamba = false;        // layers without KV heads are Mamba-2s
  bool nemotron = false;     // those are Mamba-2s or feed-forwards, which count as layers
  bool parallel = false;     // each layer attends and is a Mamba-2 at once
  bool sees_ahead = false;   // its windows reach to both sides
  // Layers differ in their heads, the last ones share K and V, and all have embeddings.
  bool gemma4 = false;
  // Rows are several streams; the last layers share K and V, and all have embeddings.
  bool gemma3n = false;
  bool latent = false;  // attention over latent rows
};

// All that libblend runs.
std::span<const GgufFamily> gguf_families();

}  // namespace blend
