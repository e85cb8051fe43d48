// What write_random_hf() writes of a random model: its config.json (hf_config.cpp) and its tensors
// (hf_writer.cpp).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "model/model_source.h"
#include "support/hf_gpt_oss.h"
#include "support/random_model.h"

namespace blend::test {

class HfModelWriter {
 public:
  HfModelWriter(const RandomModelSpec& spec, const ModelSource& source)
      : spec_(spec), source_(source), config_(source.config()) {}

  nlohmann::json config() const;
  void write_weights(const std::string& path) const;

 private:
  struct Part {
    TensorRole role;
    uint32_t layer = 0;
    uint32_t expert = 0;
  };
  struct Tensor {
    std::string name;
    std::vector<Part> parts;  // one above the other
    uint32_t n = 0;           // not 0: a first dimension of this many
    HfRawTensor raw = {};     // where there are no parts
  };

  bool is(const char* architecture) const { return spec_.architecture == architecture; }
  bool lfm2() const { return spec_.architecture.starts_with("lfm2"); }
  bool latent() const { return spec_.latent_rank != 0; }
  // In how it routes.
  bool deepseek() const { return is("glm4moe") || is("dots1") || latent(); }
  bool qwen35() const { return is("qwen35") || is("qwen35moe") || is("qwen3next"); }
  bool granite4() const { return model_type() == "granitemoehybrid"; }
  bool shared_mlp() const { return granite4() && spec_.n_experts == 0; }
  bool gemma() const { return spec_.architecture.starts_with("gemma"); }
  bool nemotron() const { return !spec_.pattern.empty(); }
  bool falcon_h1() const { return is("falcon-h1"); }
  std::string model_type() const;

  nlohmann::json rope() const;
  void describe_gemma4(nlohmann::json& out) const;
  void describe_gemma3n(nlohmann::json& out) const;
  void describe_granite4(nlohmann::json& out) const;
  void describe_falcon_h1(nlohmann::json& out) const;
  void describe_latent(nlohmann::json& out) const;
  void describe_nemotron(nlohmann::json& out) const;
  void describe_experts(nlohmann::json& out) const;

  std::vector<Tensor> tensors() const;
  void add_experts(uint32_t layer, std::vector<Tensor>& out) const;
  Tensor heads_of_latent(uint32_t layer) const;
  Tensor by_key_head(const char* name, uint32_t layer,
                     const std::vector<std::pair<TensorRole, uint32_t>>& parts) const;
  DType dtype_of(const TensorView& t) const {
    return t.blocks == BlockType::none ? t.dtype : DType::f32;
  }
  const TensorView& view_of(const Part& part) const {
    const bool one_of = is_of_experts(part.role) || is_of_streams(part.role);
    return one_of ? source_.expert_tensor(part.role, part.layer, part.expert)
                  : source_.tensor(part.role, part.layer);
  }
  std::string bytes_of(const Part& part) const;
  std::string turned_heads(TensorRole role, std::string bytes) const;

  const RandomModelSpec& spec_;
  const ModelSource& source_;
  const ModelConfig& config_;
};

}  // namespace blend::test
