// Writes a row into the cache, whatever form it comes in: the pass that kv_rows.cu and
// packed_rows.cu share. CPU reference: CpuFusionOps::scatter().
#pragma once

#include "cuda/device.cuh"
#include "cuda/rope.cuh"

namespace blend::kernels::cuda {

inline constexpr unsigned kPlaceThreads = 256;
inline constexpr uint32_t kNoDrift = UINT32_MAX;

// A block a row. A thread makes two neighbouring elements of the cache and writes them at once; for
// K it reads both ends of each pair, which the block's other reads leave in the first-level cache.
// read(is_k, column): the row's value; drift: added to it, or null.
template <typename Read>
__device__ inline void place_row(uint32_t slot, const float* drift, const KvView& cache,
                                 const RopeView& rope, const Read& read) {
  const auto kv_dim = static_cast<uint32_t>(cache.kv_dim());
  const uint32_t pairs = cache.stride / 2, n = cache.n_kv_heads * pairs;
  for (uint32_t i = threadIdx.x; i < 2 * n; i += kPlaceThreads) {
    const bool is_k = i < n;
    const uint32_t j = is_k ? i : i - n, head = j / pairs, d = j % pairs * 2;
    const uint32_t first = head * cache.head_dim;
    const float* const added = drift == nullptr ? nullptr : drift + (is_k ? 0 : kv_dim) + first;
    const auto value = [&](uint32_t e) {
      const float stored = read(is_k, first + e);
      return added == nullptr ? stored : stored + added[e];
    };
    float two[2];
    for (uint32_t e = 0; e < 2; ++e) {
      two[e] = d + e >= cache.head_dim ? 0.0f
               : is_k                  ? rotated(rope, slot, 1.0f, d + e, value)
                                       : value(d + e);
    }
    uint16_t* const to = (is_k ? cache.k : cache.v) + cache.at(head, slot) + d;
    *reinterpret_cast<uint32_t*>(to) = pack_bf16(two[0], two[1]);
  }
}

// The run that the block's row is of, and its number there.
struct StoredRow {
  const PlacedRun& run;
  uint32_t row;
};
__device__ inline StoredRow stored_row(const PlacedRuns& runs) {
  uint32_t low = 0, high = runs.n_runs;  // the last that begins at this row or before it
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    (runs.run[middle].begin <= blockIdx.x ? low : high) = middle;
  }
  return {runs.run[low], blockIdx.x - runs.run[low].begin};
}

// place_row() of a stored row, unless it is skipped.
template <typename Read>
__device__ inline void place_stored(const PlacedRuns& runs, const StoredRow& at,
                                    const KvView& cache, const RopeView& rope, const Read& read) {
  const uint32_t slot = at.run.first + at.row;
  if (runs.skip != nullptr && runs.skip[slot] != 0) return;
  const float* drift = nullptr;
  if (runs.drift != nullptr && runs.drift_row[slot] != kNoDrift) {
    drift = runs.drift + runs.drift_row[slot] * 2 * cache.kv_dim();
  }
  place_row(slot, drift, cache, rope, read);
}

}  // namespace blend::kernels::cuda
