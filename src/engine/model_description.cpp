#include "engine/model_description.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "model/fingerprint.h"

namespace blend {
namespace {

// Far above any model, so that products of two of them stay inside 64 bits.
constexpr uint32_t kMaxLayers = 1 << 16;
constexpr uint32_t kMaxHeads = 1 << 14;
constexpr uint32_t kMaxHeadDim = 1 << 14;
constexpr uint32_t kMaxVocab = 1 << 26;
constexpr uint32_t kMaxContext = 16 << 20;

Status check_range(const char* name, uint32_t value, uint32_t max) {
  if (value >= 1 && value <= max) return Status::ok();
  return make_error(BLEND_E_INVALID_ARGUMENT, "%s is %u; it must lie in 1 .. %u", name, value, max);
}

Status check_positive(const char* name, double value) {
  if (std::isfinite(value) && value > 0) return Status::ok();
  return make_error(BLEND_E_INVALID_ARGUMENT, "%s is %g; it must be a finite number above 0", name,
                    value);
}

Status check_rope(const RopeParams& r, uint32_t head_dim) {
  if (r.rotary_dim < 2 || r.rotary_dim > head_dim || r.rotary_dim % 2 != 0) {
    return make_error(BLEND_E_INVALID_ARGUMENT,
                      "rotary_dim is %u; it must be even and lie in 2 .. head_dim (%u)",
                      r.rotary_dim, head_dim);
  }
  BLEND_RETURN_IF_ERROR(check_positive("rope_theta", r.theta));
  BLEND_RETURN_IF_ERROR(check_positive("rope_linear_scale", r.linear_scale));
  if (!r.freq_factors.empty() && r.freq_factors.size() != r.rotary_dim / 2) {
    return make_error(
        BLEND_E_INVALID_ARGUMENT,
        "rope_freq_factors has %zu elements; it must have rotary_dim / 2 = %u or none",
        r.freq_factors.size(), r.rotary_dim / 2);
  }
  for (const float f : r.freq_factors) {
    BLEND_RETURN_IF_ERROR(
        check_positive("an element of rope_freq_factors", static_cast<double>(f)));
  }
  return Status::ok();
}

Status check_config(const ModelConfig& c) {
  BLEND_RETURN_IF_ERROR(check_range("n_layers", c.n_layers, kMaxLayers));
  BLEND_RETURN_IF_ERROR(check_range("n_heads", c.n_heads, kMaxHeads));
  BLEND_RETURN_IF_ERROR(check_range("n_kv_heads", c.n_kv_heads, kMaxHeads));
  BLEND_RETURN_IF_ERROR(check_range("head_dim", c.head_dim, kMaxHeadDim));
  BLEND_RETURN_IF_ERROR(check_range("n_vocab", c.n_vocab, kMaxVocab));
  BLEND_RETURN_IF_ERROR(check_range("context_length", c.context_length, kMaxContext));
  if (c.n_heads % c.n_kv_heads != 0) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "n_heads is %u, no multiple of n_kv_heads (%u)",
                      c.n_heads, c.n_kv_heads);
  }
  return check_rope(c.rope, c.head_dim);
}

}  // namespace

Result<std::shared_ptr<const ModelDescription>> ModelDescription::create(
    std::shared_ptr<Runtime> runtime, ModelConfig config, const Sha256* fingerprint) {
  BLEND_RETURN_IF_ERROR(check_config(config));
  std::shared_ptr<ModelDescription> model(new ModelDescription(std::move(runtime)));
  model->config_ = std::move(config);
  model->context_length_ = model->config_.context_length;
  if (fingerprint != nullptr) {
    model->fingerprint_ = *fingerprint;
  } else {
    Sha256Hasher hasher;
    hash_config(model->config_, hasher);
    hasher.field("described as").field(model->config_.name);
    model->fingerprint_ = hasher.finish();
  }
  return std::shared_ptr<const ModelDescription>(std::move(model));
}

Result<std::shared_ptr<const Ropes>> ModelDescription::ropes(uint32_t n_positions) const {
  const MutexLock lock(rope_mutex_);
  if (ropes_ == nullptr || ropes_->n_positions() < n_positions) {
    const uint32_t grown = std::min(std::bit_ceil(std::max(n_positions, 1024u)), context_length_);
    BLEND_ASSIGN(ropes_, Ropes::create(backend(), config(), std::max(grown, n_positions)));
  }
  return ropes_;
}

Status ModelDescription::check_length(size_t n, const std::string& what) const {
  if (n <= context_length_) return Status::ok();
  return make_error(BLEND_E_CONTEXT_LENGTH, "%s: %zu tokens; the model's context is %u",
                    what.c_str(), n, context_length_);
}

Status ModelDescription::check_tokens(std::span<const int32_t> tokens,
                                      const std::string& what) const {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || static_cast<uint32_t>(tokens[i]) >= config().n_vocab) {
      return make_error(BLEND_E_INVALID_ARGUMENT,
                        "%s: token %zu is %d, outside the vocabulary of %u tokens", what.c_str(), i,
                        tokens[i], config().n_vocab);
    }
  }
  return Status::ok();
}

}  // namespace blend
