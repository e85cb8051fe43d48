// Rows of K and V that are still packed (store/FORMAT.md: codecs int8 and int4): decoded on their
// way into the KV cache, or to memory.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "cuda/kv_rows.h"
#include "formats/half.h"
#include "formats/packing.h"

namespace blend::kernels::cuda {

// Rows of two encoded planes on the device, which have been checked (check_packed_layer()).
struct PackedRows {
  const uint8_t* k = nullptr;  // the planes, from their first byte on; any alignment
  const uint8_t* v = nullptr;
  Packing packing = Packing::int8;
  DType type = DType::f16;  // decoded values are rounded to it, as by the host
  uint32_t kv_dim = 0;
  uint32_t head_dim = 0;  // int8: columns of V that share a scale
  uint32_t plane_rows = 0;
  uint32_t first = 0;  // of the plane's rows
};

// place_runs() of packed rows; their values are rounded to runs.type.
void place_packed_runs(Packing packing, const PlacedRuns& runs, const KvView& cache,
                       const RopeView& rope, cudaStream_t stream);

// k, v: device [n, kv_dim] of packed.type.
void unpack_rows(const PackedRows& packed, size_t n, void* k, void* v, cudaStream_t stream);

}  // namespace blend::kernels::cuda
