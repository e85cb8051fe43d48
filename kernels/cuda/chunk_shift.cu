// The shift of chunks. CPU reference: CpuFusionOps::shift_rows().
#include "cuda/chunk_shift.h"
#include "cuda/device.cuh"

namespace blend::kernels::cuda {
namespace {

constexpr unsigned kThreads = 256;

// A block a chunk and kThreads columns.
__global__ void __launch_bounds__(kThreads)
    sums_kernel(ChunkShifts shifts, size_t n_columns, float* sums) {
  const size_t column = blockIdx.y * size_t{kThreads} + threadIdx.x;
  if (column >= n_columns) return;
  const MovedSpan chunk = shifts.chunks[blockIdx.x];
  float sum = 0;
  for (uint32_t i = 0; i < chunk.n; ++i) {
    sum += shifts.moves[(size_t{chunk.begin} + i) * n_columns + column];
  }
  sums[blockIdx.x * n_columns + column] = sum;
}

// The moved rows of a chunk that are near a slot, [first, last), and the inverse of the sum of all
// weights.
struct NearRows {
  uint32_t first, last;
  float inverse;
};
__device__ inline NearRows near_rows(const ChunkShifts& shifts, const MovedSpan& chunk,
                                     uint32_t slot) {
  const uint32_t least = slot > ChunkShifts::kNear ? slot - ChunkShifts::kNear : 0;
  uint32_t low = chunk.begin, high = chunk.begin + chunk.n;
  while (low < high) {
    const uint32_t middle = (low + high) / 2;
    if (shifts.moved[middle] < least) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  float weights = static_cast<float>(chunk.n) + shifts.prior;
  uint32_t last = low;
  for (; last < chunk.begin + chunk.n; ++last) {
    const uint32_t at = shifts.moved[last];
    if (at > slot + ChunkShifts::kNear) break;
    weights += shifts.near[at < slot ? slot - at : at - slot];
  }
  return {low, last, 1.0f / weights};
}

// A block a row. A thread shifts a pair of elements of RoPE (K), or two neighbours.
__global__ void __launch_bounds__(kThreads)
    shift_kernel(ChunkShifts shifts, KvView cache, RopeView rope, const float* sums) {
  const ShiftedRow row = shifts.rows[blockIdx.x];
  const MovedSpan chunk = shifts.chunks[row.chunk];
  const NearRows near = near_rows(shifts, chunk, row.slot);
  const auto kv_dim = static_cast<uint32_t>(cache.kv_dim());
  const size_t n_columns = 2 * size_t{kv_dim};
  const float* const sum = sums + row.chunk * n_columns;
  const auto shift_of = [&](uint32_t column) {
    float shift = sum[column];
    for (uint32_t i = near.first; i < near.last; ++i) {
      const uint32_t at = shifts.moved[i];
      shift += shifts.near[at < row.slot ? row.slot - at : at - row.slot] *
               shifts.moves[i * n_columns + column];
    }
    return shift * near.inverse;
  };
  const uint32_t pairs = (cache.head_dim + 1) / 2, n = cache.n_kv_heads * pairs;
  for (uint32_t i = threadIdx.x; i < 2 * n; i += kThreads) {
    const bool is_k = i < n;
    const uint32_t j = is_k ? i : i - n, head = j / pairs, pair = j % pairs;
    const bool turns = is_k && pair < rope.half, apart = turns && rope.halves;
    const uint32_t a = apart ? pair : 2 * pair, b = apart ? pair + rope.half : a + 1;
    const uint32_t first = (is_k ? 0 : kv_dim) + head * cache.head_dim;
    float x = shift_of(first + a), y = b < cache.head_dim ? shift_of(first + b) : 0.0f;
    if (turns) {
      const float* const at = rope.table + size_t{row.slot} * 2 * rope.half;
      const float cos = at[pair], sin = at[rope.half + pair], unturned = x;
      x = unturned * cos - y * sin;
      y = unturned * sin + y * cos;
    }
    uint16_t* const to = (is_k ? cache.k : cache.v) + cache.at(head, row.slot);
    to[a] = to_bf16(from_bf16(to[a]) + x);
    if (b < cache.head_dim) to[b] = to_bf16(from_bf16(to[b]) + y);
  }
}

}  // namespace

void shift_chunks(const ChunkShifts& shifts, const KvView& cache, const RopeView& rope, float* sums,
                  cudaStream_t stream) {
  if (shifts.n_rows == 0) return;
  const size_t n_columns = 2 * cache.kv_dim();
  const dim3 grid(static_cast<unsigned>(shifts.n_chunks),
                  static_cast<unsigned>((n_columns + kThreads - 1) / kThreads));
  const auto add_up = &sums_kernel;
  BLEND_LAUNCH(add_up, grid, kThreads, 0, stream, shifts, n_columns, sums);
  const auto shift = &shift_kernel;
  BLEND_LAUNCH(shift, static_cast<unsigned>(shifts.n_rows), kThreads, 0, stream, shifts, cache,
               rope, sums);
}

}  // namespace blend::kernels::cuda
