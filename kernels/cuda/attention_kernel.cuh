// The kernel of attention of gathered query rows, after FlashAttention-2 (Dao 2023); the use of its
// scores differs (Use).
//
// A block: 16 m-rows a warp (attention_plan.h) of one KV head. Row i of the prompt sees exactly the
// slots 0..pos(i), or the last `window` of them: CacheBlend recomputes scattered rows, so the mask
// is not a triangle; it is needed only in the tiles of keys that reach beyond the first position of
// a warp's rows, or begin before the last one's window.
//
// Shared memory, in rows of kHeadDim bf16:
//
//   | Q: 16 * kWarps | K stage 0: kKeys | V stage 0 | K stage 1 | V stage 1 |
//
// The next tile of K and V is loaded (cp.async) during the computation with one. Chunks of 16 bytes
// are swizzled within a row so that the eight rows that ldmatrix reads at once lie in different
// banks. S = Q K^T stays in registers; the layout of mma's result is that of its left operand, so P
// goes into P V without leaving them.
//
// Besides 128 mma (head size 128, a tile of 64 keys) a warp has some 550 other instructions to
// issue, and these are the limit where mma.sync is fast (scripts/cuda_issue_slots.py counts them):
// the mask is branched around, the scale is part of the exponent's multiply-add, and 2^x is the
// device's own.
#pragma once

#include "cuda/attention_tiles.cuh"

namespace blend::kernels::cuda {

using AttentionKernel = void (*)(AttentionArgs);

// Stores two neighbouring elements of a result row that has `left` more.
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

// Blocks that a multiprocessor shall hold at once: what shared memory allows, stated so that
// registers are not spilled for more.
template <int kHeadDim, int kWarps>
constexpr int kBlocks = kWarps == 1 || kHeadDim > 128 ? 1
                        : kHeadDim > 64               ? 2
                                                      : 3;

// How the scores are used.
enum class Use : uint8_t {
  results,  // the rows' results, or their parts where the keys are split
  stats,    // each part's largest score and weight, and nothing else: V is not read
  of_kind,  // the parts of the keys of one kind (a.kind), whether they are split or not
};

// Whether any of a tile's keys is of the wanted kind; the same in all lanes of a warp.
template <int kKeys>
__device__ inline bool has_kind(const AttentionArgs& a, uint32_t first, uint32_t n_keys) {
  int any = 0;
  for (uint32_t key = first + threadIdx.x % 32; key < first + kKeys && key < n_keys; key += 32) {
    any |= (a.tempered[key] != 0) == a.kind;
  }
  return __ballot_sync(0xffffffffu, any) != 0;
}

// Sets -infinity for the keys of the other kind.
template <int kKeys>
__device__ inline void mask_kind(const AttentionArgs& a, uint32_t first, uint32_t t,
                                 uint32_t n_keys, float (&s)[kKeys / 8][4]) {
#pragma unroll
  for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const uint32_t key = first + n * 8 + 2 * t + e;
      if (key < n_keys && (a.tempered[key] != 0) == a.kind) continue;
      s[n][e] = s[n][e + 2] = -INFINITY;
    }
  }
}

// The work of a block (tile of m-rows, KV head, .) for part `split` of the keys. position(i): of
// row i.
template <int kHeadDim, int kWarps, int kKeys, Use kUse, typename Positions>
__device__ __forceinline__ void attend(const AttentionArgs& a, uint32_t split,
                                       const Positions& position) {
  constexpr int kSteps = kHeadDim / 16;     // of Q K^T, along the head
  constexpr int kKeyTiles = kKeys / 8;      // of S, along the keys
  constexpr int kOutTiles = kHeadDim / 8;   // of the result, along the head
  constexpr bool kKeepQ = kHeadDim <= 128;  // fragments of Q in registers, where they fit
  constexpr bool kWithV = kUse != Use::stats;
  constexpr uint32_t kStage = 2 * kKeys * kHeadDim;

  auto* const q_tile = reinterpret_cast<uint16_t*>(dynamic_shared());
  uint16_t* const stages = q_tile + 16 * kWarps * kHeadDim;

  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  // The last rows see the most keys: they go first, so that all blocks end at about the same time.
  const uint32_t first_m = (gridDim.x - 1 - blockIdx.x) * 16 * kWarps;
  const uint32_t kv_head = blockIdx.y;
  const uint32_t last_m =
      first_m + 16 * kWarps < a.m_rows ? first_m + 16 * kWarps - 1 : a.m_rows - 1;
  const uint32_t n_keys = position(last_m / a.group) + 1;
  const uint32_t window = a.rows.window;
  const KeyTiles tiles =
      key_tiles(first_key(position(first_m / a.group), window), n_keys, kKeys, split, a.splits);

  // The two rows of this thread in every fragment, and how far they and the warp's others see.
  const uint32_t warp_m = first_m + warp * 16, m[2] = {warp_m + g, warp_m + g + 8};
  uint32_t pos[2];
  for (int r = 0; r < 2; ++r) pos[r] = position((m[r] < last_m ? m[r] : last_m) / a.group);
  const uint32_t least = position((warp_m < last_m ? warp_m : last_m) / a.group);
  const uint32_t most = position((warp_m + 15 < last_m ? warp_m + 15 : last_m) / a.group);

  const uint16_t* const k = a.cache.k + a.cache.at(kv_head, 0);
  const uint16_t* const v = a.cache.v + a.cache.at(kv_head, 0);
  if (tiles.begin < tiles.end) {
    stage_kv<kHeadDim, kWarps, kKeys, kWithV>(a.cache, k, v, tiles.begin * kKeys, n_keys, stages);
  }
  stage_q<kHeadDim, kWarps>(a, first_m, kv_head, q_tile);
  __syncthreads();

  const FragmentLane at;
  uint32_t q[kKeepQ ? kSteps : 1][4];
  if constexpr (kKeepQ) {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      ldmatrix_x4<false>(
          q[s], q_tile + swizzled<kHeadDim>(warp * 16 + at.down_row, 2 * s + at.down_chunk));
    }
  }

  float sum[kOutTiles][4];
#pragma unroll
  for (int n = 0; n < kOutTiles; ++n) sum[n][0] = sum[n][1] = sum[n][2] = sum[n][3] = 0.0f;
  float largest[2] = {-INFINITY, -INFINITY}, weight[2] = {0.0f, 0.0f};
  // A sink is a score that came before all others: of the first part, in one of a row's four lanes.
  if (a.rows.sinks != nullptr && split == 0 && !(kUse == Use::of_kind && a.kind)) {
    for (int r = 0; r < 2; ++r) {
      largest[r] = a.rows.sinks[kv_head * a.group + m[r] % a.group] * kLog2e;
      weight[r] = t == 0 ? 1.0f : 0.0f;
    }
  }

  for (uint32_t tile = tiles.begin; tile < tiles.end; ++tile) {
    const uint16_t* const k_tile = stages + (tile - tiles.begin) % 2 * kStage;
    const uint16_t* const v_tile = k_tile + kKeys * kHeadDim;
    if (tile + 1 < tiles.end) {
      stage_kv<kHeadDim, kWarps, kKeys, kWithV>(a.cache, k, v, (tile + 1) * kKeys, n_keys,
                                                stages + (tile + 1 - tiles.begin) % 2 * kStage);
      copy_async_wait<1>();
    } else {
      copy_async_wait<0>();
    }
    __syncthreads();
    const uint32_t first = tile * kKeys;
    bool sees = first <= most && first + kKeys > first_key(least, window);
    if constexpr (kUse == Use::of_kind) sees = sees && has_kind<kKeys>(a, first, n_keys);
    if (sees) {
      float s[kKeyTiles][4];
      score_tile<kHeadDim, kKeys, kKeepQ>(q, q_tile, warp * 16, k_tile, s);
      if (a.rows.softcap != 0.0f) cap_scores(a.scale_log2, a.rows.softcap, s);
      const float scale = a.exponent;
      // Most tiles lie before all the rows' positions.
      if (first + kKeys - 1 > least || first < first_key(most, window)) {
        mask_scores(first, t, pos, window, s);
      }
      if constexpr (kUse == Use::of_kind) mask_kind<kKeys>(a, first, t, n_keys, s);
      float now[2] = {-INFINITY, -INFINITY};
#pragma unroll
      for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) now[e / 2] = fmaxf(now[e / 2], s[n][e]);
      }

      // The online softmax: earlier sums shrink as the largest score grows.
      float from[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        // The four lanes of a row.
        now[r] = fmaxf(now[r], __shfl_xor_sync(0xffffffffu, now[r], 1));
        now[r] = fmaxf(now[r], __shfl_xor_sync(0xffffffffu, now[r], 2));
        now[r] = fmaxf(largest[r], multiply_down(now[r], scale));
        from[r] = now[r] == -INFINITY ? 0.0f : now[r];  // no key of this row so far
        const float shrink = exp2_approx(largest[r] - from[r]);
        largest[r] = now[r];
        weight[r] *= shrink;
#pragma unroll
        for (int n = 0; n < kOutTiles; ++n) {
          sum[n][2 * r] *= shrink;
          sum[n][2 * r + 1] *= shrink;
        }
      }
      // The product is not rounded but the largest one was, downwards: with scores whose last digit
      // is more than 1 the difference may be anything above 0.
#pragma unroll
      for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          s[n][e] = exp2_approx(fminf(fmaf(s[n][e], scale, -from[e / 2]), 0.0f));
          weight[e / 2] += s[n][e];
        }
      }

      // sum += P V
#pragma unroll
      for (int step = 0; step < (kWithV ? kKeys / 16 : 0); ++step) {
        const uint32_t p[4] = {pack_bf16(s[2 * step][0], s[2 * step][1]),
                               pack_bf16(s[2 * step][2], s[2 * step][3]),
                               pack_bf16(s[2 * step + 1][0], s[2 * step + 1][1]),
                               pack_bf16(s[2 * step + 1][2], s[2 * step + 1][3])};
#pragma unroll
        for (int n = 0; n < kOutTiles; n += 2) {
          uint32_t b[4];
          ldmatrix_x4<true>(
              b, v_tile + swizzled<kHeadDim>(step * 16 + at.down_row, n + at.down_chunk));
          mma_bf16(sum[n], p, b[0], b[1]);
          mma_bf16(sum[n + 1], p, b[2], b[3]);
        }
      }
    }
    __syncthreads();  // the stage is about to be overwritten
  }

#pragma unroll
  for (int r = 0; r < 2; ++r) {
    weight[r] += __shfl_xor_sync(0xffffffffu, weight[r], 1);
    weight[r] += __shfl_xor_sync(0xffffffffu, weight[r], 2);
    if (m[r] >= a.m_rows) continue;
    const uint32_t head_dim = a.cache.head_dim;
    if (kUse != Use::results || a.splits > 1) {
      const size_t part = (size_t{split} * a.cache.n_kv_heads + kv_head) * a.m_rows + m[r];
      if (t == 0) {
        a.stats[2 * part] = largest[r];
        a.stats[2 * part + 1] = weight[r];
      }
#pragma unroll
      for (int n = 0; n < (kWithV ? kOutTiles : 0); ++n) {
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

// One warp combines the parts of m-row i of all KV heads, in their order.
__device__ inline void combine(const AttentionArgs& a, uint32_t i) {
  const uint32_t head_dim = a.cache.head_dim, n = a.cache.n_kv_heads * a.m_rows;
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
inline constexpr unsigned kCombineWarps = 4;

template <int kHeadDim, int kWarps, int kKeys, Use kUse>
__global__ void __launch_bounds__(32 * kWarps, kBlocks<kHeadDim, kWarps>)
    attention_kernel(AttentionArgs a) {
  attend<kHeadDim, kWarps, kKeys, kUse>(a, blockIdx.z,
                                        [&](uint32_t row) { return a.rows.pos[row]; });
}

template <Use kUse, int kHeadDim>
AttentionKernel kernel_of(uint32_t warps) {
  constexpr int kKeys = static_cast<int>(keys_of_tile(kHeadDim));
  return warps == 1 ? &attention_kernel<kHeadDim, 1, kKeys, kUse>
                    : &attention_kernel<kHeadDim, 4, kKeys, kUse>;
}

template <Use kUse>
AttentionKernel kernel_of(uint32_t padded, uint32_t warps) {
  switch (padded) {
    case 32:
      return kernel_of<kUse, 32>(warps);
    case 64:
      return kernel_of<kUse, 64>(warps);
    case 96:
      return kernel_of<kUse, 96>(warps);
    case 128:
      return kernel_of<kUse, 128>(warps);
    default:
      return kernel_of<kUse, 256>(warps);
  }
}

// Prepares each kernel before its first launch; it also loads them: some are launched first while a
// step is recorded, when kernels must not be loaded. kernel_of(padded, warps).
template <typename KernelOf>
cudaError_t prepare_each_of(const KernelOf& of) {
  for (const uint32_t padded : {32u, 64u, 96u, 128u, 256u}) {
    for (const uint32_t warps : {1u, 4u}) {
      AttentionPlan plan;
      plan.padded = padded;
      plan.warps = warps;
      plan.keys = keys_of_tile(padded);
      const cudaError_t error =
          cudaFuncSetAttribute(of(padded, warps), cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(plan.shared_bytes()));
      if (error != cudaSuccess) return error;
    }
  }
  return cudaSuccess;
}
template <Use kUse>
cudaError_t prepare_kernels() {
  return prepare_each_of(
      [](uint32_t padded, uint32_t warps) { return kernel_of<kUse>(padded, warps); });
}

// The arguments of a call at temperature 1; scratch: [plan.part_floats()], or null: no parts.
inline AttentionArgs arguments_of(const AttentionRows& rows, const KvView& cache,
                                  const AttentionPlan& plan, float* scratch) {
  AttentionArgs a{};
  a.rows = rows;
  a.cache = cache;
  a.m_rows = plan.m_rows;
  a.group = plan.m_rows / static_cast<uint32_t>(rows.q.n);
  a.scale_log2 = rows.scale * kLog2e;
  a.exponent = rows.softcap != 0.0f ? 1.0f : a.scale_log2;
  a.splits = plan.splits;
  if (scratch != nullptr) {
    a.stats = scratch;
    a.sums = scratch + plan.part_floats(false);
  }
  return a;
}

template <Use kUse>
void launch_attention(const AttentionArgs& a, const AttentionPlan& plan, cudaStream_t stream) {
  const AttentionKernel kernel = kernel_of<kUse>(plan.padded, plan.warps);
  const dim3 grid(plan.m_tiles, plan.n_kv_heads, plan.splits);
  BLEND_LAUNCH(kernel, grid, 32 * plan.warps, plan.shared_bytes(), stream, a);
}

}  // namespace blend::kernels::cuda
