// Staged rows as plain rows of their type, for the kernels that do not decode packed ones.
#pragma once

#include "backend/cuda/core.h"
#include "backend/stored_run.h"

namespace blend::cuda {

// k, v: device [n_rows, kv_dim] of the run's type, as long as this and the staged rows live.
struct PlainRows {
  const void* k = nullptr;
  const void* v = nullptr;
  Memory unpacked;  // holds them if they were packed
};

// Of staged run i, which is `run`.
Result<PlainRows> plain_rows(const CudaCore& core, const Stager::Rows& staged, size_t i,
                             const StoredRun& run, size_t kv_dim);

}  // namespace blend::cuda
