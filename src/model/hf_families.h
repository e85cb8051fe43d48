// What is true of a `model_type` without being said in its config.json.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "model/config.h"
#include "model/hf_experts.h"

namespace blend {

// Which layers see a window where `layer_types` does not say.
enum class Windows : uint8_t {
  all,             // every layer, where there is a window at all
  from_max_layer,  // those from `max_window_layers` on
  without_rope,    // those that do not rotate
  alternate,       // all but each `sliding_window_pattern`-th
  first_evens,     // those of an even number before `max_window_layers`
};

// Properties of a `model_type` that its members do not state, as transformers runs it.
struct HfFamily {
  std::string_view model_type;
  bool tied = false;  // where the file does not say
  double theta = 10000;
  int64_t head_dim = 0;  // where the file does not say; 0: hidden_size / heads
  double eps = 1e-6;
  Windows windows = Windows::all;
  int64_t window = 0;              // where the file does not say; 0: none
  bool window_asked = false;       // only with use_sliding_window
  int64_t pattern = 0;             // of Windows::alternate
  int64_t max_window_layers = 28;  // of Windows::from_max_layer, where the file does not say
  bool qkv_bias = false;           // always; else as attention_bias says
  bool qkv_bias_asked = false;     // with it: unless the member qkv_bias says otherwise
  QkNorm qk_norm = QkNorm::none;
  bool qk_norm_asked = false;  // only with use_qk_norm
  double rotating_share = 1;   // of a head, where the file does not say
  bool nope = false;
  bool fused = false;
  bool gemma = false;
  bool granite = false;       // scales of embedding, scores, results and logits
  bool granite4 = false;      // a Granite with names of its own and, maybe, experts and Mamba-2s
  bool post_only = false;     // results are normalised, and nothing else
  bool full_is_nope = false;  // with a window: layers without it do not rotate
  bool plain_local = false;   // with a window: scaling is for layers without it
  RopeLayout layout = RopeLayout::half_split;
  const char* bias = nullptr;   // the member that says whether there are biases everywhere
  bool attention_bias = false;  // where the file does not say
  bool out_bias_apart = false;  // attention_out_bias says whether the output has one
  HfExperts experts = HfExperts::none;
  bool convolves = false;    // layers of the type "conv" do; names of its own (LFM2)
  bool delta = false;        // layers of the type "linear_attention" are Gated DeltaNets (Qwen3.5)
  bool by_key_head = false;  // of those: their projections are in two tensors (Qwen3-Next)
  // Layers differ in their heads, the last ones share K and V, and all have embeddings.
  bool gemma4 = false;
  // Rows are several streams; the last layers share K and V, and all have embeddings.
  bool gemma3n = false;
  bool falcon_h1 = false;  // each layer attends and is a Mamba-2 at once; numbers that scale it
  bool latent = false;     // attention over latent rows
};

// All that libblend runs.
std::span<const HfFamily> hf_families();

}  // namespace blend
