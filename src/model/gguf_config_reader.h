// Reads a GGUF's keys: what all families have in gguf_config.cpp, RoPE, layers that do not attend,
// latent rows and those of Gemma 3n and 4 in files of their own.
#pragma once

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "model/gguf_families.h"
#include "model/llama_source.h"

namespace blend {

// Granite's scales.
inline constexpr const char* kLogitScale = "logit_scale";
inline constexpr const char* kEmbeddingScale = "embedding_scale";
inline constexpr const char* kResidualScale = "residual_scale";
// Mistral 3's.
inline constexpr const char* kYarnLogMultiplier = "rope.scaling.yarn_log_multiplier";
inline constexpr const char* kTemperatureScale = "attention.temperature_scale";

// Reads one file's keys; those of the architecture are named without it. Used by one call.
class GgufConfigReader {
 public:
  GgufConfigReader(const GgufReader& gguf, const GgufFamily& family)
      : gguf_(gguf), family_(family) {}

  Result<ModelConfig> read();

 private:
  std::string key(const char* name) const { return std::string(family_.architecture) + "." + name; }
  static Result<uint32_t> in_range(const std::string& key, uint32_t value, uint32_t max) {
    if (value >= 1 && value <= max) return value;
    return make_error(BLEND_E_FORMAT, "key '%s' is %u; 1 to %u make sense", key.c_str(), value,
                      max);
  }
  Result<uint32_t> required(const char* name, uint32_t max) const {
    BLEND_ASSIGN(const std::optional<uint32_t> value, gguf_.get_u32(key(name)));
    return needed(name, value, max);
  }
  Result<uint32_t> needed(const char* name, const std::optional<uint32_t>& value,
                          uint32_t max) const {
    if (!value) return make_error(BLEND_E_FORMAT, "key '%s' is missing", key(name).c_str());
    return in_range(key(name), *value, max);
  }
  Result<uint32_t> with_default(const char* name, uint32_t otherwise, uint32_t max) const {
    BLEND_ASSIGN(const std::optional<uint32_t> value, gguf_.get_u32(key(name)));
    return in_range(key(name), value.value_or(otherwise), max);
  }
  static Result<double> positive(const std::string& key, double value) {
    if (std::isfinite(value) && value > 0) return value;
    return make_error(BLEND_E_FORMAT, "key '%s' is %g; it must be a finite number above 0",
                      key.c_str(), value);
  }
  Result<double> positive_or(const char* name, double otherwise) const {
    BLEND_ASSIGN(const std::optional<double> value, gguf_.get_float(key(name)));
    return positive(key(name), value.value_or(otherwise));
  }
  Result<std::optional<uint32_t>> of_layers(const char* name) const;
  Result<std::vector<uint32_t>> by_layer(const char* name, uint32_t max) const;
  bool has_tensor(const char* name) const { return gguf_.tensor(name) != nullptr; }

  Status refuse_unsupported() const;
  Status read_shape();
  Status read_attention();
  Result<uint32_t> read_kv_heads();
  Status read_delta();
  Status read_mamba();
  Status read_blocks();
  Status read_latent();
  Status read_state_heads(RowMixer& m) const;
  Status read_windows();
  Status read_rope();
  Status read_scaling(const std::string& type);
  Status read_yarn();
  Status read_growth();
  Result<std::vector<float>> read_factors(const char* name) const;
  Status read_longrope();
  Result<std::vector<bool>> windowed() const;
  Status read_family();
  Status read_granite();
  Status read_gemma4();
  Status read_gemma3n();
  // Both have these: layers with a window, layers that share K and V, and embeddings of all.
  Result<std::vector<bool>> local_layers() const;
  Status read_sharing();
  Status read_inputs();
  Status read_local_rope();
  // The base of RoPE.
  Result<double> base(const char* name, double otherwise) const;
  Status read_pooling();

  const GgufReader& gguf_;
  const GgufFamily& family_;
  ModelConfig c_;
};

}  // namespace blend
