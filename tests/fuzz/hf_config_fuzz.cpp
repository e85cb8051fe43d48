// A config.json of any bytes (libFuzzer): it is refused, or describes a model whose sizes make
// sense.
#include <cmath>
#include <cstdint>
#include <cstdlib>

#include "model/hf_config.h"

namespace {

void check(const blend::RopeParams& rope, uint32_t head_dim) {
  if (rope.rotary_dim > head_dim || rope.rotary_dim % 2 != 0) std::abort();
  if (!rope.freq_factors.empty() && rope.freq_factors.size() != rope.rotary_dim / 2) std::abort();
  for (const float f : rope.freq_factors) {
    if (!std::isfinite(f) || f <= 0) std::abort();
  }
  if (!std::isfinite(rope.attention_factor) || rope.attention_factor <= 0) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto json = blend::Json::parse({reinterpret_cast<const char*>(data), size});
  if (!json.is_ok()) return 0;
  const auto config = blend::read_hf_config(blend::JsonView(json.value(), ""));
  if (!config.is_ok()) {
    const int32_t code = config.status().code();
    if (code != BLEND_E_FORMAT && code != BLEND_E_UNSUPPORTED) std::abort();
    return 0;
  }
  const blend::ModelConfig& c = config.value().model;
  if (c.n_layers == 0 || c.n_kv_heads == 0 || c.n_heads % c.n_kv_heads != 0) std::abort();
  if (!c.layers.empty() && c.layers.size() != c.n_layers) std::abort();
  check(c.rope, c.head_dim);
  check(c.local_rope, c.head_dim);
  return 0;
}
