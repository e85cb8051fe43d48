// Reads a config.json: what all families have in hf_config.cpp, what some have in files of their
// own.
#pragma once

#include <optional>
#include <vector>

#include "model/hf_config.h"
#include "model/hf_families.h"

namespace blend {

// Reads one file. Used by one call.
class HfConfigReader {
 public:
  // whole: what `root` is a part of, or the same.
  HfConfigReader(const JsonView& root, const JsonView& whole, const HfFamily& family)
      : root_(root), whole_(whole), family_(family), experts_(family.experts) {}

  Result<HfConfig> read();

 private:
  Result<int64_t> integer(const char* name, int64_t max) const {
    BLEND_ASSIGN(const JsonView value, root_.need(name));
    return value.integer(1, max);
  }
  Result<int64_t> integer_or(const char* name, int64_t otherwise, int64_t min, int64_t max) const {
    return root_.integer_or(name, otherwise, min, max);
  }
  Result<float> positive_or(const char* name, double otherwise) const;
  bool is_null(const char* name) const {
    const Json* const value = root_.value().find(name);
    return value != nullptr && value->is_null();
  }

  Status read_shape();
  Result<int64_t> read_d_ff() const;
  Status read_conv();
  Status read_latent();
  Status read_latent_rope(const std::optional<JsonView>& params);
  Status read_delta();
  Result<std::vector<bool>> of_type(const char* type) const;
  Status read_tensors();
  Status read_biases();
  Status read_ropes();
  Result<bool> read_alpha(const std::optional<JsonView>& params, double& theta) const;
  Status read_growth(const std::optional<JsonView>& params);
  Status read_layers();
  Result<std::vector<bool>> rotating() const;
  Result<std::vector<bool>> windowed(const std::vector<bool>& rotating) const;
  Status read_gemma();
  Status read_gemma_scales(double softcap);
  Status read_gemma4();
  // Gemma 3n and Gemma 4 have these: layers that share K and V, and embeddings of all layers.
  Status read_sharing();
  Status read_inputs();
  Status read_gemma3n();
  Status read_gemma3n_streams();
  Result<std::vector<float>> read_gate_cuts() const;
  // The widths of feed-forwards may be a list.
  Result<int64_t> first_width() const;
  Status read_widths();
  Status read_gemma4_ropes();
  Status read_gemma4_heads(const std::vector<bool>& local);
  Status read_layer_heads(uint32_t layer, int64_t& dim, int64_t& n) const;
  Status read_granite();
  Status read_granite4();
  Status read_falcon_h1();
  Status find_granite4_experts();

  const JsonView& root_;
  const JsonView& whole_;
  const HfFamily& family_;
  HfExperts experts_;
  double rotating_share_ = 1;  // of a Gemma 4's heads without a window
  HfConfig out_;
  ModelConfig& c_ = out_.model;
};

}  // namespace blend
