// config.json of a Hugging Face model: the hyperparameters of the families that libblend runs.
#pragma once

#include "base/json_reader.h"
#include "model/config.h"
#include "model/hf_quantization.h"

namespace blend {

// A config.json's facts besides hyperparameters.
struct HfConfig {
  ModelConfig model;   // weight_dtype is the tensors', so it is left alone here
  bool tied = false;   // the output matrix is the embedding
  bool fused = false;  // Q, K and V are one matrix, and gate and up are (Phi-3)
  // Names of tensors that differ from a Llama's.
  bool shared_mlp = false;      // the feed-forward's, with gate and up as one matrix (Granite 4)
  bool layer_norms = false;     // those of the norms of Q and K (Hunyuan)
  bool granite_shared = false;  // shared experts have those of shared_mlp (Granite)
  bool lfm2 = false;            // most of them (LFM2)
  bool by_key_head = false;     // those of what a Gated DeltaNet projects, which is in two tensors
                                // (Qwen3-Next)
  bool nemotron = false;        // all of them (model/hf_nemotron.h)
  bool falcon_h1 = false;       // those of the feed-forward and of two norms (Falcon-H1)
  bool towers = false;          // those of the language model are in "model.language_model."
  // Layers that predict further tokens, which libblend does not run; the files need not have them.
  uint32_t layers_ahead = 0;  // those after the last
  bool mtp = false;           // in "mtp." (Qwen, Nemotron)
  HfQuantization quantization;
};

// FORMAT names the member that makes no sense, UNSUPPORTED the unsupported feature. Members that
// are absent have the values that transformers gives them.
Result<HfConfig> read_hf_config(const JsonView& root);

// Its RoPE: `rope_parameters`, or `rope_theta` and `rope_scaling` in files from before transformers
// 5. `params`: the object that holds the scaling, or nullopt. `theta` and `share` (of a head, which
// rotates) apply where that object holds none. head_dim, context_length: of the model.
struct HfRope {
  RopeParams rope;
  // LongRoPE: see ModelConfig.
  uint32_t short_context = 0;
  RopeParams long_rope = {};
};
Result<HfRope> read_hf_rope(const JsonView& root, const std::optional<JsonView>& params,
                            double theta, double share, uint32_t head_dim, uint32_t context_length);

}  // namespace blend
