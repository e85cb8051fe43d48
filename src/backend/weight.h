// Weights in a backend's own form.
#pragma once

#include <cstddef>
#include <cstdint>

namespace blend {

// How matrices are kept: = BLEND_WEIGHTS_*.
enum class WeightForm : uint32_t {
  automatic = 0,  // Model chooses
  packed = 1,     // a copy in the form that the backend computes fastest with
  mapped = 2,     // as in the file, decoded when used: no memory, slower for many rows
  int8 = 3,       // a copy of 8 bits a weight, multiplied with activations of 8 bits where possible
};

// Packed matrix, lookup table, or vector. Immutable.
class Weight {
 public:
  virtual ~Weight() = default;
  virtual size_t bytes() const = 0;  // memory it owns (0 where it refers to the mapped file)
};

}  // namespace blend
