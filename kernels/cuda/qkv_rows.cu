// Copies Q, K and V of one product to where attention reads them. CPU reference:
// CpuBackend::rope_q() and write_kv().
#include "cuda/kv_place.cuh"
#include "cuda/qkv_rows.h"

namespace blend::kernels::cuda {
namespace {

// Elements of Q of one block: a row is shared by several, which a step of one row needs.
constexpr uint32_t kQElements = 4 * kPlaceThreads;

unsigned blocks_of_row(uint32_t q_dim) { return 1 + (q_dim + kQElements - 1) / kQElements; }

// Elements i and i + 1 of a row of Q; both are written at once where rows are even.
__device__ inline void turn_two(const RopeView& rope, uint32_t pos, const float* from, uint32_t i,
                                uint32_t q_dim, uint32_t head_dim, uint16_t* to) {
  float two[2] = {0.0f, 0.0f};
  for (uint32_t e = 0; e < 2 && i + e < q_dim; ++e) {
    const uint32_t d = (i + e) % head_dim;
    const float* const head = from + (i + e - d);
    two[e] = rotated(rope, pos, 1.0f, d, [&](uint32_t at) { return head[at]; });
  }
  if (q_dim % 2 == 0) {
    *reinterpret_cast<uint32_t*>(to + i) = pack_bf16(two[0], two[1]);
    return;
  }
  to[i] = to_bf16(two[0]);
  if (i + 1 < q_dim) to[i + 1] = to_bf16(two[1]);
}

// A row of the product by the blocks with its x: block 0 takes K and V, the others parts of Q.
// kv may be null.
__device__ inline void place_row_qkv(const float* from, uint32_t q_dim, uint32_t pos,
                                     const RopeView& q_rope, const RopeView& k_rope,
                                     const KvView& cache, uint16_t* q, float* kv) {
  if (blockIdx.y == 0) {
    const auto kv_dim = static_cast<uint32_t>(cache.kv_dim());
    const float* const fresh = from + q_dim;
    if (kv != nullptr) {
      for (uint32_t i = threadIdx.x; i < 2 * kv_dim; i += kPlaceThreads) kv[i] = fresh[i];
    }
    place_row(pos, nullptr, cache, k_rope,
              [&](bool is_k, uint32_t col) { return fresh[(is_k ? 0 : kv_dim) + col]; });
    return;
  }
  const uint32_t begin = (blockIdx.y - 1) * kQElements;
  const uint32_t end = q_dim - begin < kQElements ? q_dim : begin + kQElements;
  for (uint32_t i = begin + 2 * threadIdx.x; i < end; i += 2 * kPlaceThreads) {
    turn_two(q_rope, pos, from, i, q_dim, cache.head_dim, q);
  }
}

__global__ void __launch_bounds__(kPlaceThreads)
    place_qkv_kernel(QkvRows rows, RopeView q_rope, RopeView k_rope, KvView cache, uint16_t* q,
                     float* kv) {
  const size_t row = blockIdx.x, width = 2 * cache.kv_dim();
  place_row_qkv(rows.data + row * (rows.q_dim + width), rows.q_dim, rows.pos[row], q_rope, k_rope,
                cache, q + row * rows.q_dim, kv + row * width);
}

__global__ void __launch_bounds__(kPlaceThreads)
    place_step_kernel(const __grid_constant__ StepRows rows, const float* data, uint32_t q_dim,
                      RopeView q_rope, RopeView k_rope, uint16_t* q) {
  const StepRows::Row& at = rows.row[blockIdx.x];
  q_rope.table = at.q_turns;
  k_rope.table = at.k_turns;
  place_row_qkv(data + at.row * (q_dim + 2 * rows.shape.kv_dim()), q_dim, at.pos, q_rope, k_rope,
                rows.cache(blockIdx.x), q + size_t{at.row} * q_dim, nullptr);
}

}  // namespace

void place_qkv(const QkvRows& rows, const RopeView& q_rope, const RopeView& k_rope,
               const KvView& cache, uint16_t* q, float* kv, cudaStream_t stream) {
  if (rows.n == 0) return;
  const dim3 grid(static_cast<unsigned>(rows.n), blocks_of_row(rows.q_dim));
  const auto kernel = &place_qkv_kernel;
  BLEND_LAUNCH(kernel, grid, kPlaceThreads, 0, stream, rows, q_rope, k_rope, cache, q, kv);
}

void place_step(const StepRows& rows, const float* data, uint32_t q_dim, const RopeView& q_rope,
                const RopeView& k_rope, uint16_t* q, cudaStream_t stream) {
  if (rows.n == 0) return;
  const dim3 grid(rows.n, blocks_of_row(q_dim));
  const auto kernel = &place_step_kernel;
  BLEND_LAUNCH(kernel, grid, kPlaceThreads, 0, stream, rows, data, q_dim, q_rope, k_rope, q);
}

}  // namespace blend::kernels::cuda
