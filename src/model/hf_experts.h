// Mixtures of experts of a Hugging Face directory: members of config.json, and names of tensors.
#pragma once

#include <string>

#include "base/json_reader.h"
#include "model/hf_tensors.h"
#include "model/model_source.h"

namespace blend {

// How a family writes its experts into config.json.
enum class HfExperts : uint8_t {
  none,
  qwen,  // Qwen3: a width of their own, layers by list and interval
  // Likewise, beside a shared one whose result is weighed.
  qwen2,
  qwen3_next,
  qwen3_5,    // in every layer, always normalised
  olmoe,      //
  mixtral,    // always normalised
  granite,    // always normalised, shared ones in a part of the models
  deepseek2,  // as DeepSeek-V2 routes: softmax, groups by their best expert; shared ones
  deepseek,   // as DeepSeek-V3 routes: sigmoid, groups, a bias for the choice; shared ones
  nemotron,   // likewise, with a shared one of its own width; the list of blocks says where
  lfm2,       // by sigmoid, a bias for the choice; dense first layers
  ernie,      // shared ones, a bias for the choice, layers from one to another
  gpt_oss,    // always normalised, biases everywhere; rows of gate and up alternate
  gemma4,     // beside a dense feed-forward, where enable_moe_block says so; always normalised
};

// FORMAT names the member that makes no sense, UNSUPPORTED one that asks for something else.
// config: its other members are known.
Result<Experts> read_hf_experts(const JsonView& root, HfExperts kind, const ModelConfig& config);

// Names after that of a layer, "model.layers.<layer>." or the like.
struct HfExpertNames {
  const char* router;
  // Tensors of all experts at once; null: there are none. alternate: HfTensors::experts().
  const char* all_gate_up;
  const char* all_down;
  // Tensors of one expert: stem, its number, and an end.
  const char* stem;
  const char* gate;
  const char* up;
  const char* down;
  bool alternate = false;
};
// Those that the router's name in a layer speaks for, or the usual ones.
const HfExpertNames& hf_expert_names(const HfTensors& weights, const std::string& layer);

// The router's bias and the experts' in a layer of a gpt-oss.
Result<TensorView> find_gpt_oss_bias(HfTensors& weights, TensorRole role, const std::string& layer);

// The tensor of a role of one expert; prefix: the name of its layer.
Result<TensorView> find_hf_expert(HfTensors& weights, const std::string& prefix, TensorRole role,
                                  uint32_t layer, uint32_t expert, const ModelConfig& config);

}  // namespace blend
