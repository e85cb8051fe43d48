// ModelConfig: the hyperparameters of a decoder-only Transformer, whatever file they came from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/half.h"

namespace blend {

// How RoPE pairs the elements of a head.
enum class RopeLayout : uint8_t {
  interleaved,  // (0,1), (2,3), ... : GGUF `llama` (ggml NORM)
  half_split,   // (0,d/2), (1,d/2+1), ... : Hugging Face, ggml NEOX
};

struct RopeParams {
  RopeLayout layout = RopeLayout::interleaved;
  uint32_t rotary_dim = 0;  // elements of a head that rotate; <= head_dim, even
  double theta = 10000.0;
  double linear_scale = 1.0;        // positions are divided by it
  std::vector<float> freq_factors;  // [rotary_dim/2] or empty: frequencies are divided by them
                                    // (Llama 3.1 `rope_freqs.weight`)
};

struct ModelConfig {
  std::string architecture;  // "llama"
  std::string name;
  uint32_t n_layers = 0;
  uint32_t d_model = 0;
  uint32_t n_heads = 0;
  uint32_t n_kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t d_ff = 0;
  uint32_t n_vocab = 0;
  uint32_t context_length = 0;
  float rms_eps = 1e-5f;
  RopeParams rope;
  DType weight_dtype = DType::f32;  // of the matrices

  uint32_t q_dim() const { return n_heads * head_dim; }
  uint32_t kv_dim() const { return n_kv_heads * head_dim; }
  uint32_t group() const { return n_heads / n_kv_heads; }  // query heads per KV head
};

}  // namespace blend
