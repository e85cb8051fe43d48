// Parameters of attention.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "backend/kv_cache.h"
#include "backend/weight.h"

namespace blend {

// How a row's scores are computed from Q and K, and which keys it sees.
struct AttentionRule {
  float scale = 0;      // of the scores; 0: 1 / sqrt(head_dim)
  uint32_t window = 0;  // row i sees slots pos[i] - window + 1 .. pos[i]; 0: all from slot 0 on
  float softcap = 0;    // scores become softcap * tanh(score / softcap); 0: off
  // A vector [n_heads]: a score of each head that is as if of one more key, without a value: it
  // takes a part of the softmax, and adds nothing to the result (attention sinks). Null: none.
  const Weight* sinks = nullptr;

  // The scale, or the default for heads of this size.
  float scale_of(size_t head_dim) const {
    if (scale != 0) return scale;
    return static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
  }
};

// A row of Q and the cache that it sees: slots 0 .. pos, or the layer's window of them.
struct RowOver {
  const KvCache* cache = nullptr;
  uint32_t row = 0;
  uint32_t pos = 0;
};

// Slots whose keys are attended to at a temperature, and whose sum of exponentials is raised to a
// power, before they share a row's attention with the others (APE, Yang et al. 2025).
struct Tempering {
  const uint8_t* slots = nullptr;  // host [the last row's position + 1]: non-zero = tempered
  float temperature = 1.0f;        // T > 0
  float scale = 1.0f;              // S > 0
};

}  // namespace blend
