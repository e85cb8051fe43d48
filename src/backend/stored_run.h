// StoredRun: rows of a chunk on their way into a prompt.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/memory.h"
#include "formats/half.h"
#include "formats/packing.h"

namespace blend {

// A run of consecutive stored rows, in host memory; K before RoPE. Operations may read it after
// they have returned if it lies in memory of Backend::allocate_host(): fence() says until when.
struct StoredRun {
  const std::byte* k = nullptr;  // [n_rows, kv_dim] of dtype
  const std::byte* v = nullptr;  // [n_rows, kv_dim] of dtype
  DType dtype = DType::f16;
  uint32_t n_rows = 0;
  uint32_t first = 0;  // scatter(): slot of the first row; deviation(): row of the fresh tensor
  // Not none: k and v are encoded planes, and the run is their rows from plane_row on; dtype is
  // the type that their values are rounded to. Only where BackendTraits::decodes_packed.
  PackedPlanes packed = {};
  uint32_t plane_row = 0;
  const DeviceBuffer* kept = nullptr;  // not null: k and v lie there, not in host memory
};

}  // namespace blend
