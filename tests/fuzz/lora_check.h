// What the fuzzers of LoRA adapters share: a small model, and what every adapter that was read
// keeps.
#pragma once

#include <cmath>
#include <cstdlib>
#include <utility>

#include "model/lora/lora_adapter.h"
#include "model/tensor_table.h"

namespace blend::fuzz {

inline ModelConfig lora_config(const char* architecture) {
  ModelConfig c;
  c.architecture = architecture;
  c.n_layers = 2;
  c.d_model = 32;
  c.n_heads = 4;
  c.n_kv_heads = 2;
  c.head_dim = c.rope.rotary_dim = 8;
  c.d_ff = 48;
  c.n_vocab = 40;
  return c;
}

// It is refused, or its matrices have the model's shapes and finite elements.
inline void check_lora(const Result<LoraAdapter>& read, const ModelConfig& config) {
  if (!read.is_ok()) {
    const int32_t code = read.status().code();
    if (code != BLEND_E_FORMAT && code != BLEND_E_UNSUPPORTED && code != BLEND_E_MISMATCH &&
        code != BLEND_E_NUMERIC) {
      std::abort();
    }
    return;
  }
  if (read.value().matrices.empty()) std::abort();
  for (const LoraMatrix& m : read.value().matrices) {
    std::vector<int64_t> shape = tensor_shape(m.role, config, m.layer);
    if (m.role == TensorRole::embedding) std::swap(shape[0], shape[1]);
    if (m.layer >= config.n_layers || m.rank == 0 || !std::isfinite(m.factor)) std::abort();
    if (m.up.size() != static_cast<size_t>(shape[0]) * m.rank) std::abort();
    if (m.down.size() != static_cast<size_t>(shape[1]) * m.rank) std::abort();
    for (const std::vector<float>* values : {&m.up, &m.down}) {
      for (const float v : *values) {
        if (!std::isfinite(v)) std::abort();
      }
    }
  }
}

}  // namespace blend::fuzz
