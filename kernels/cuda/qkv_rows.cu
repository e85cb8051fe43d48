// Q, K and V of one product, to where attention reads them. CPU reference: CpuBackend::rope_q() and
// write_kv().
#include "cuda/kv_place.cuh"
#include "cuda/qkv_rows.h"

namespace blend::kernels::cuda {
namespace {

// Of Q a block takes so many elements: a row is shared by several, which a step of one row needs.
constexpr uint32_t kQElements = 4 * kPlaceThreads;

// Elements i and i + 1 of a row of Q, of which both may be written at once where rows are even.
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

// Blocks (row, 0) take K and V, the others parts of Q.
__global__ void __launch_bounds__(kPlaceThreads)
    place_qkv_kernel(QkvRows rows, RopeView q_rope, RopeView k_rope, KvView cache, uint16_t* q,
                     float* kv) {
  const uint32_t row = blockIdx.x, pos = rows.pos[row];
  const auto kv_dim = static_cast<uint32_t>(cache.kv_dim());
  const float* const from = rows.data + row * (size_t{rows.q_dim} + 2 * kv_dim);
  if (blockIdx.y == 0) {
    const float* const fresh = from + rows.q_dim;
    float* const out = kv + size_t{row} * 2 * kv_dim;
    for (uint32_t i = threadIdx.x; i < 2 * kv_dim; i += kPlaceThreads) out[i] = fresh[i];
    place_row(pos, nullptr, cache, k_rope,
              [&](bool is_k, uint32_t col) { return fresh[(is_k ? 0 : kv_dim) + col]; });
    return;
  }
  const uint32_t begin = (blockIdx.y - 1) * kQElements;
  const uint32_t end = rows.q_dim - begin < kQElements ? rows.q_dim : begin + kQElements;
  for (uint32_t i = begin + 2 * threadIdx.x; i < end; i += 2 * kPlaceThreads) {
    turn_two(q_rope, pos, from, i, rows.q_dim, cache.head_dim, q + size_t{row} * rows.q_dim);
  }
}

}  // namespace

void place_qkv(const QkvRows& rows, const RopeView& q_rope, const RopeView& k_rope,
               const KvView& cache, uint16_t* q, float* kv, cudaStream_t stream) {
  if (rows.n == 0) return;
  const dim3 grid(static_cast<unsigned>(rows.n), 1 + (rows.q_dim + kQElements - 1) / kQElements);
  const auto kernel = &place_qkv_kernel;
  BLEND_LAUNCH(kernel, grid, kPlaceThreads, 0, stream, rows, q_rope, k_rope, cache, q, kv);
}

}  // namespace blend::kernels::cuda
