// The drift correction's inputs and results: what the drift maps (profile/drift_maps.h) are
// computed from, how much of their prediction is applied, and which rows it is added to.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "backend/tensor.h"

namespace blend {

// Facts about a stored row besides its K and V. The first kScales of them also multiply these.
struct StoredFeatures {
  static constexpr size_t kScales = 2;
  static constexpr size_t kCount = 5;
  std::array<float, kCount> values;

  // inside, outside: of the row (engine/context_impact.h); index: of the row in its chunk.
  static StoredFeatures of(float inside, float outside, uint32_t index) {
    constexpr float kLeast = 1e-6f;
    return {{1.0f, outside, std::log(std::max(outside, kLeast)), std::log(std::max(inside, kLeast)),
             std::log1p(static_cast<float>(index))}};
  }
};

// Inputs of a row to the drift maps besides its deviation vector.
struct DriftInputs {
  bool fresh = false;     // K | V of the row as computed at the check layer
  bool constant = false;  // 1
  bool stored = false;    // without these: for a row of which nothing is computed
  bool operator==(const DriftInputs&) const = default;
  static DriftInputs of_stored() { return {false, false, true}; }

  // Inputs of a row: [fresh - stored: 2 kv_dim][fresh: 2 kv_dim, or nothing][1, or nothing]; of a
  // stored one: [K | V times each of the first kScales features][features].
  size_t size(size_t kv_dim) const {
    if (stored) return 2 * kv_dim * StoredFeatures::kScales + StoredFeatures::kCount;
    return 2 * kv_dim * (fresh ? 2u : 1u) + (constant ? 1u : 0u);
  }
};

// Share of the drift correction that is applied (fusion/correct/corrector.h): a factor for K, one
// for V.
struct DriftShare {
  float k = 1;
  float v = 1;
};

// Added to stored rows as they are scattered, to K before it is rotated.
struct Correction {
  static constexpr uint32_t kNone = UINT32_MAX;
  Tensor kv;                      // [rows, 2 * kv_dim] = K | V
  const uint32_t* row = nullptr;  // host [capacity]: the row of kv for a slot, or kNone
};

}  // namespace blend
