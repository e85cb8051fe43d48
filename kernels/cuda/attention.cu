// Attention of gathered query rows, after FlashAttention-2 (Dao 2023). CPU reference:
// kernels/cpu/attention.cpp, attention_ref().
//
// A block: 16 m-rows a warp (attention_plan.h) of one KV head. Row i of the prompt sees exactly the
// slots 0..pos(i), or the last `window` of them: CacheBlend recomputes scattered rows, so the mask
// is no triangle; it is needed only in the tiles of keys that reach beyond the first position of a
// warp's rows, or begin before the last one's window.
//
// Shared memory, in rows of kHeadDim bf16:
//
//   | Q: 16 * kWarps | K stage 0: kKeys | V stage 0 | K stage 1 | V stage 1 |
//
// The next tile of K and V is on its way (cp.async) while one is computed with. Chunks of 16 bytes
// are swizzled within a row so that the eight rows that ldmatrix reads at once lie in different
// banks. S = Q K^T stays in registers; the layout of mma's result is that of its left operand, so P
// goes into P V without leaving them.
#include "cuda/attention.h"
#include "cuda/device.cuh"
#include "cuda/ptx.cuh"

namespace blend::kernels::cuda {
namespace {

constexpr float kLog2e = 1.4426950408889634f;

struct Args {
  AttentionRows rows;
  KvView cache;
  uint32_t group;
  uint32_t m_rows;
  float scale_log2;  // scores times this are exponents of 2
  uint32_t splits;
  float* sums;   // [splits][n_kv_heads][m_rows][head_dim]; unused without splits
  float* stats;  // [splits][n_kv_heads][m_rows][2] = largest score (as an exponent of 2), weight
};

// Where chunk c (8 elements) of a row lies, in elements.
template <int kHeadDim>
__device__ inline uint32_t swizzled(uint32_t row, uint32_t c) {
  // A row whose length is no multiple of 128 bytes shifts the banks by half itself.
  const uint32_t with = kHeadDim % 64 == 0 ? row & 7 : row >> 1 & 3;
  return row * kHeadDim + (c ^ with) * 8;
}

// Eight elements of Q from `first` on, those from `n` on being 0.
template <DType kType>
__device__ inline uint4 load_q(const void* q, size_t first, uint32_t n, bool whole) {
  if (whole) {
    if constexpr (kType == DType::bf16) {
      return *reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(q) + first);
    } else {
      const float4 a = load4<DType::f32>(q, first / 4), b = load4<DType::f32>(q, first / 4 + 1);
      return {pack_bf16(a.x, a.y), pack_bf16(a.z, a.w), pack_bf16(b.x, b.y), pack_bf16(b.z, b.w)};
    }
  }
  float v[8];
  for (uint32_t e = 0; e < 8; ++e) v[e] = e < n ? load<kType>(q, first + e) : 0.0f;
  return {pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]), pack_bf16(v[4], v[5]),
          pack_bf16(v[6], v[7])};
}

// The tile's m-rows into shared memory; rows and elements that do not exist are 0.
template <int kHeadDim, int kWarps>
__device__ inline void stage_q(const Args& a, uint32_t first_m, uint32_t kv_head, uint16_t* to) {
  constexpr uint32_t kChunks = kHeadDim / 8;
  const uint32_t head_dim = a.cache.head_dim;
  for (uint32_t i = threadIdx.x; i < 16 * kWarps * kChunks; i += 32 * kWarps) {
    const uint32_t row = i / kChunks, c = i % kChunks, m = first_m + row;
    uint4 value = {0, 0, 0, 0};
    if (m < a.m_rows && c * 8 < head_dim) {
      const uint32_t head = kv_head * a.group + m % a.group;
      const size_t first = m / a.group * a.rows.q.cols + size_t{head} * head_dim + c * 8;
      const bool whole = head_dim % 8 == 0;
      value = a.rows.q.type == DType::f32
                  ? load_q<DType::f32>(a.rows.q.data, first, head_dim - c * 8, whole)
                  : load_q<DType::bf16>(a.rows.q.data, first, head_dim - c * 8, whole);
    }
    *reinterpret_cast<uint4*>(to + swizzled<kHeadDim>(row, c)) = value;
  }
}

// Starts the copy of keys [first, first + kKeys) and their values; those from n_keys on are 0, and
// memory that was never written is not looked at.
template <int kHeadDim, int kWarps, int kKeys>
__device__ inline void stage_kv(const KvView& cache, const uint16_t* k, const uint16_t* v,
                                uint32_t first, uint32_t n_keys, uint16_t* to) {
  constexpr uint32_t kChunks = kHeadDim / 8;
  for (uint32_t i = threadIdx.x; i < kKeys * kChunks; i += 32 * kWarps) {
    const uint32_t row = i / kChunks, c = i % kChunks, slot = first + row;
    const bool present = slot < n_keys && c * 8 < cache.stride;
    const size_t at = present ? size_t{slot} * cache.stride + c * 8 : 0;
    const uint32_t in_tile = swizzled<kHeadDim>(row, c);
    copy_async_16(to + in_tile, k + at, present);
    copy_async_16(to + kKeys * kHeadDim + in_tile, v + at, present);
  }
  copy_async_commit();
}

// Two neighbouring elements of a result row of which the row has `left` more.
__device__ inline void store_two(const Rows& out, size_t at, uint32_t left, float x, float y) {
  if (left == 0) return;
  if (out.type == DType::f32) {
    auto* const to = static_cast<float*>(out.data) + at;
    to[0] = x;
    if (left > 1) to[1] = y;
  } else {
    auto* const to = static_cast<uint16_t*>(out.data) + at;
    if (left > 1 && at % 2 == 0) {
      *reinterpret_cast<uint32_t*>(to) = pack_bf16(x, y);
    } else {
      to[0] = to_bf16(x);
      if (left > 1) to[1] = to_bf16(y);
    }
  }
}

// Blocks that a multiprocessor is to hold at once: what shared memory allows, said so that
// registers are not spilled for more.
template <int kHeadDim, int kWarps>
constexpr int kBlocks = kWarps == 1 || kHeadDim > 128 ? 1
                        : kHeadDim > 64               ? 2
                                                      : 3;

template <int kHeadDim, int kWarps, int kKeys>
__global__ void __launch_bounds__(32 * kWarps, kBlocks<kHeadDim, kWarps>) attention_kernel(Args a) {
  constexpr int kSteps = kHeadDim / 16;     // of Q K^T, along the head
  constexpr int kKeyTiles = kKeys / 8;      // of S, along the keys
  constexpr int kOutTiles = kHeadDim / 8;   // of the result, along the head
  constexpr bool kKeepQ = kHeadDim <= 128;  // fragments of Q in registers, where they fit
  constexpr uint32_t kStage = 2 * kKeys * kHeadDim;

  auto* const q_tile = reinterpret_cast<uint16_t*>(dynamic_shared());
  uint16_t* const stages = q_tile + 16 * kWarps * kHeadDim;

  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  // The last rows see the most keys: they go first, so that the device ends its work at once.
  const uint32_t first_m = (gridDim.x - 1 - blockIdx.x) * 16 * kWarps;
  const uint32_t kv_head = blockIdx.y, split = blockIdx.z;
  const uint32_t last_m =
      first_m + 16 * kWarps < a.m_rows ? first_m + 16 * kWarps - 1 : a.m_rows - 1;
  const uint32_t n_keys = a.rows.pos[last_m / a.group] + 1;
  const uint32_t window = a.rows.window;
  const KeyTiles tiles =
      key_tiles(first_key(a.rows.pos[first_m / a.group], window), n_keys, kKeys, split, a.splits);

  // The two rows of this thread in every fragment, and how far they and the warp's others see.
  const uint32_t warp_m = first_m + warp * 16, m[2] = {warp_m + g, warp_m + g + 8};
  uint32_t pos[2];
  for (int r = 0; r < 2; ++r) pos[r] = a.rows.pos[(m[r] < last_m ? m[r] : last_m) / a.group];
  const uint32_t least = a.rows.pos[(warp_m < last_m ? warp_m : last_m) / a.group];
  const uint32_t most = a.rows.pos[(warp_m + 15 < last_m ? warp_m + 15 : last_m) / a.group];

  const uint16_t* const k = a.cache.k + a.cache.at(kv_head, 0);
  const uint16_t* const v = a.cache.v + a.cache.at(kv_head, 0);
  if (tiles.begin < tiles.end) {
    stage_kv<kHeadDim, kWarps, kKeys>(a.cache, k, v, tiles.begin * kKeys, n_keys, stages);
  }
  stage_q<kHeadDim, kWarps>(a, first_m, kv_head, q_tile);
  __syncthreads();

  // Of the four matrices that ldmatrix loads at once, the row and chunk whose address this lane
  // gives. Q, and V (transposed): matrices down, then across. K: across, then down.
  const uint32_t down_row = lane % 16, down_chunk = lane / 16;
  const uint32_t across_row = lane % 8 + lane / 16 * 8, across_chunk = lane / 8 % 2;

  uint32_t q[kKeepQ ? kSteps : 1][4];
  if constexpr (kKeepQ) {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      ldmatrix_x4<false>(q[s],
                         q_tile + swizzled<kHeadDim>(warp * 16 + down_row, 2 * s + down_chunk));
    }
  }

  float sum[kOutTiles][4];
#pragma unroll
  for (int n = 0; n < kOutTiles; ++n) sum[n][0] = sum[n][1] = sum[n][2] = sum[n][3] = 0.0f;
  float largest[2] = {-INFINITY, -INFINITY}, weight[2] = {0.0f, 0.0f};

  for (uint32_t tile = tiles.begin; tile < tiles.end; ++tile) {
    const uint16_t* const k_tile = stages + (tile - tiles.begin) % 2 * kStage;
    const uint16_t* const v_tile = k_tile + kKeys * kHeadDim;
    if (tile + 1 < tiles.end) {
      stage_kv<kHeadDim, kWarps, kKeys>(a.cache, k, v, (tile + 1) * kKeys, n_keys,
                                        stages + (tile + 1 - tiles.begin) % 2 * kStage);
      copy_async_wait<1>();
    } else {
      copy_async_wait<0>();
    }
    __syncthreads();
    const uint32_t first = tile * kKeys;
    if (first <= most && first + kKeys > first_key(least, window)) {
      // S = Q K^T
      float s[kKeyTiles][4];
#pragma unroll
      for (int n = 0; n < kKeyTiles; ++n) s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0.0f;
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        uint32_t loaded[4];
        if constexpr (!kKeepQ) {
          ldmatrix_x4<false>(
              loaded, q_tile + swizzled<kHeadDim>(warp * 16 + down_row, 2 * step + down_chunk));
        }
        const uint32_t(&left)[4] = kKeepQ ? q[kKeepQ ? step : 0] : loaded;
#pragma unroll
        for (int n = 0; n < kKeyTiles; n += 2) {
          uint32_t b[4];
          ldmatrix_x4<false>(
              b, k_tile + swizzled<kHeadDim>(n * 8 + across_row, 2 * step + across_chunk));
          mma_bf16(s[n], left, b[0], b[1]);
          mma_bf16(s[n + 1], left, b[2], b[3]);
        }
      }

      // Exponents of 2, and the mask.
      const bool masked = first + kKeys - 1 > least || first < first_key(most, window);
      if (a.rows.softcap != 0.0f) {
        // cap * tanh(s / cap), and tanh(x) = 1 - 2 / (1 + exp(2 x)).
        const float inner = a.scale_log2 * 2.0f / a.rows.softcap, cap = a.rows.softcap * kLog2e;
#pragma unroll
        for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            s[n][e] = cap - 2.0f * cap / (1.0f + exp2f(s[n][e] * inner));
          }
        }
      }
      const float scale = a.rows.softcap != 0.0f ? 1.0f : a.scale_log2;
      float now[2] = {largest[0], largest[1]};
#pragma unroll
      for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          s[n][e] *= scale;
          const uint32_t key = first + n * 8 + 2 * t + (e & 1);
          if (masked && (key > pos[e / 2] || key < first_key(pos[e / 2], window))) {
            s[n][e] = -INFINITY;
          }
          now[e / 2] = fmaxf(now[e / 2], s[n][e]);
        }
      }

      // The online softmax: what was summed shrinks as the largest score grows.
      float from[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        // The four lanes of a row.
        now[r] = fmaxf(now[r], __shfl_xor_sync(0xffffffffu, now[r], 1));
        now[r] = fmaxf(now[r], __shfl_xor_sync(0xffffffffu, now[r], 2));
        from[r] = now[r] == -INFINITY ? 0.0f : now[r];  // no key of this row so far
        const float shrink = exp2f(largest[r] - from[r]);
        largest[r] = now[r];
        weight[r] *= shrink;
#pragma unroll
        for (int n = 0; n < kOutTiles; ++n) {
          sum[n][2 * r] *= shrink;
          sum[n][2 * r + 1] *= shrink;
        }
      }
#pragma unroll
      for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          s[n][e] = exp2f(s[n][e] - from[e / 2]);
          weight[e / 2] += s[n][e];
        }
      }

      // sum += P V
#pragma unroll
      for (int step = 0; step < kKeys / 16; ++step) {
        const uint32_t p[4] = {pack_bf16(s[2 * step][0], s[2 * step][1]),
                               pack_bf16(s[2 * step][2], s[2 * step][3]),
                               pack_bf16(s[2 * step + 1][0], s[2 * step + 1][1]),
                               pack_bf16(s[2 * step + 1][2], s[2 * step + 1][3])};
#pragma unroll
        for (int n = 0; n < kOutTiles; n += 2) {
          uint32_t b[4];
          ldmatrix_x4<true>(b, v_tile + swizzled<kHeadDim>(step * 16 + down_row, n + down_chunk));
          mma_bf16(sum[n], p, b[0], b[1]);
          mma_bf16(sum[n + 1], p, b[2], b[3]);
        }
      }
    }
    __syncthreads();  // the stage is about to be written again
  }

#pragma unroll
  for (int r = 0; r < 2; ++r) {
    weight[r] += __shfl_xor_sync(0xffffffffu, weight[r], 1);
    weight[r] += __shfl_xor_sync(0xffffffffu, weight[r], 2);
    if (m[r] >= a.m_rows) continue;
    const uint32_t head_dim = a.cache.head_dim;
    if (a.splits > 1) {
      const size_t part = (size_t{split} * a.cache.n_kv_heads + kv_head) * a.m_rows + m[r];
      if (t == 0) {
        a.stats[2 * part] = largest[r];
        a.stats[2 * part + 1] = weight[r];
      }
#pragma unroll
      for (int n = 0; n < kOutTiles; ++n) {
        const uint32_t d = n * 8 + 2 * t;
        if (d < head_dim) a.sums[part * head_dim + d] = sum[n][2 * r];
        if (d + 1 < head_dim) a.sums[part * head_dim + d + 1] = sum[n][2 * r + 1];
      }
    } else {
      const uint32_t head = kv_head * a.group + m[r] % a.group;
      const size_t row = m[r] / a.group * a.rows.out.cols + size_t{head} * head_dim;
      const float share = 1.0f / weight[r];
#pragma unroll
      for (int n = 0; n < kOutTiles; ++n) {
        const uint32_t d = n * 8 + 2 * t;
        store_two(a.rows.out, row + d, d < head_dim ? head_dim - d : 0, sum[n][2 * r] * share,
                  sum[n][2 * r + 1] * share);
      }
    }
  }
}

// Puts the parts of an m-row together, in their order: a warp each.
constexpr unsigned kCombineWarps = 4;
__global__ void __launch_bounds__(32 * kCombineWarps) combine_kernel(Args a) {
  const uint32_t head_dim = a.cache.head_dim, n = a.cache.n_kv_heads * a.m_rows;
  const uint32_t i = blockIdx.x * kCombineWarps + threadIdx.x / 32;
  if (i >= n) return;
  const uint32_t kv_head = i / a.m_rows, m = i % a.m_rows;
  float largest = -INFINITY, weight = 0;
  for (uint32_t s = 0; s < a.splits; ++s) {
    largest = fmaxf(largest, a.stats[2 * (size_t{s} * n + i)]);
  }
  for (uint32_t s = 0; s < a.splits; ++s) {
    const size_t part = size_t{s} * n + i;
    weight += a.stats[2 * part + 1] * exp2f(a.stats[2 * part] - largest);
  }
  const uint32_t head = kv_head * a.group + m % a.group;
  const size_t row = m / a.group * a.rows.out.cols + size_t{head} * head_dim;
  for (uint32_t d = threadIdx.x % 32; d < head_dim; d += 32) {
    float sum = 0;
    for (uint32_t s = 0; s < a.splits; ++s) {
      const size_t part = size_t{s} * n + i;
      sum += a.sums[part * head_dim + d] * exp2f(a.stats[2 * part] - largest);
    }
    store_two(a.rows.out, row + d, 1, sum / weight, 0.0f);
  }
}

using Kernel = void (*)(Args);

template <int kHeadDim>
Kernel kernel_of(uint32_t warps) {
  constexpr int kKeys = static_cast<int>(keys_of_tile(kHeadDim));
  return warps == 1 ? &attention_kernel<kHeadDim, 1, kKeys> : &attention_kernel<kHeadDim, 4, kKeys>;
}

Kernel kernel_of(uint32_t padded, uint32_t warps) {
  switch (padded) {
    case 32:
      return kernel_of<32>(warps);
    case 64:
      return kernel_of<64>(warps);
    case 96:
      return kernel_of<96>(warps);
    case 128:
      return kernel_of<128>(warps);
    default:
      return kernel_of<256>(warps);
  }
}

}  // namespace

cudaError_t prepare_attention() {
  for (const uint32_t padded : {32u, 64u, 96u, 128u, 256u}) {
    for (const uint32_t warps : {1u, 4u}) {
      AttentionPlan plan;
      plan.padded = padded;
      plan.warps = warps;
      plan.keys = keys_of_tile(padded);
      const cudaError_t error = cudaFuncSetAttribute(kernel_of(padded, warps),
                                                     cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                     static_cast<int>(plan.shared_bytes()));
      if (error != cudaSuccess) return error;
    }
  }
  // Loaded now: it is first launched where the keys are first split, and that may be while a step
  // is recorded, when kernels must not be loaded.
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, combine_kernel);
}

void attention(const AttentionRows& rows, const KvView& cache, const AttentionPlan& plan,
               float* scratch, cudaStream_t stream) {
  Args a{};
  a.rows = rows;
  a.cache = cache;
  a.m_rows = plan.m_rows;
  a.group = plan.m_rows / static_cast<uint32_t>(rows.q.n);
  a.scale_log2 = rows.scale * kLog2e;
  a.splits = plan.splits;
  a.sums = scratch;
  const uint32_t n = plan.n_kv_heads * plan.m_rows;
  if (plan.splits > 1) a.stats = scratch + size_t{plan.splits} * n * plan.head_dim;
  const Kernel kernel = kernel_of(plan.padded, plan.warps);
  const dim3 grid(plan.m_tiles, plan.n_kv_heads, plan.splits);
  BLEND_LAUNCH(kernel, grid, 32 * plan.warps, plan.shared_bytes(), stream, a);
  if (plan.splits == 1) return;
  const Kernel combine = &combine_kernel;
  const unsigned blocks = (n + kCombineWarps - 1) / kCombineWarps;
  BLEND_LAUNCH(combine, blocks, 32 * kCombineWarps, 0, stream, a);
}

}  // namespace blend::kernels::cuda
