// Packing: the forms in which quantized rows of K and V may reach a device that decodes them itself
// (store/FORMAT.md has their bytes).
#pragma once

#include <cstddef>
#include <cstdint>

namespace blend {

enum class Packing : uint8_t { none, int8, int4 };

// The encoded planes that contain a run of rows: K and V of one layer of one chunk.
struct PackedPlanes {
  Packing packing = Packing::none;  // none: rows are not encoded, and the rest is meaningless
  uint32_t n_rows = 0;              // of the planes
  uint32_t head_dim = 0;            // int8: columns of V that share a scale
  size_t k_bytes = 0;
  size_t v_bytes = 0;
};

}  // namespace blend
