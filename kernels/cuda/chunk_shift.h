// The shift of chunks (src/backend/chunk_shift.h has the rule).
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "cuda/kv_rows.h"

namespace blend::kernels::cuda {

// A chunk's rows among those that moved.
struct MovedSpan {
  uint32_t begin;
  uint32_t n;
};
// A row that is shifted.
struct ShiftedRow {
  uint32_t slot;
  uint32_t chunk;
};

// All pointers are of the device.
struct ChunkShifts {
  static constexpr uint32_t kNear = 16;
  const float* moves = nullptr;     // [.., 2 * kv_dim] = K | V
  const uint32_t* moved = nullptr;  // [..] slots, ascending
  const MovedSpan* chunks = nullptr;
  size_t n_chunks = 0;
  const ShiftedRow* rows = nullptr;  // none of them moved
  size_t n_rows = 0;
  float near[kNear + 1] = {};  // what is added to the weight 1 of a row at a distance
  float prior = 0;
};

// sums: [n_chunks, 2 * kv_dim], scratch.
void shift_chunks(const ChunkShifts& shifts, const KvView& cache, const RopeView& rope, float* sums,
                  cudaStream_t stream);

}  // namespace blend::kernels::cuda
