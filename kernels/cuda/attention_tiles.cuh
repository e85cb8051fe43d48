// Shared by the kernels that walk tiles of keys with tensor cores: attention_kernel.cuh and
// attention_mass.cu.
#pragma once

#include "cuda/attention.h"
#include "cuda/device.cuh"
#include "cuda/ptx.cuh"

namespace blend::kernels::cuda {

inline constexpr float kLog2e = 1.4426950408889634f;

struct AttentionArgs {
  AttentionRows rows;
  KvView cache;
  uint32_t group;
  uint32_t m_rows;
  float scale_log2;  // Q K^T times this are exponents of 2
  float exponent;    // final factor: scale_log2, or 1 where it was capped
  uint32_t splits;
  float* sums;   // [splits][n_kv_heads][m_rows][head_dim]; unused where a block writes results
  float* stats;  // [splits][n_kv_heads][m_rows][2] = largest score (as an exponent of 2), weight
  const uint8_t* tempered;  // of_kind: device [slots], non-zero = tempered
  bool kind;                // of_kind: the wanted kind of keys
};

// The row and chunk whose address this lane passes to ldmatrix, which loads four matrices at
// once. Q, and V (transposed): matrices down, then across. K: across, then down.
struct FragmentLane {
  uint32_t down_row, down_chunk, across_row, across_chunk;
  __device__ FragmentLane() {
    const uint32_t lane = threadIdx.x % 32;
    down_row = lane % 16;
    down_chunk = lane / 16;
    across_row = lane % 8 + lane / 16 * 8;
    across_chunk = lane / 8 % 2;
  }
};

// Offset of chunk c (8 elements) of a row, in elements.
template <int kHeadDim>
__device__ inline uint32_t swizzled(uint32_t row, uint32_t c) {
  // A row whose length is not a multiple of 128 bytes shifts the banks by half itself.
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
__device__ inline void stage_q(const AttentionArgs& a, uint32_t first_m, uint32_t kv_head,
                               uint16_t* to) {
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

// Starts the copy of keys [first, first + kKeys) and, kWithV, of their values after them; those
// from n_keys on are 0, and memory that was never written is not read. k, v: of the head's
// slot 0.
template <int kHeadDim, int kWarps, int kKeys, bool kWithV>
__device__ inline void stage_kv(const KvView& cache, const uint16_t* k, const uint16_t* v,
                                uint32_t first, uint32_t n_keys, uint16_t* to) {
  constexpr uint32_t kChunks = kHeadDim / 8, kThreads = 32 * kWarps;
  const auto copy = [&](uint32_t row, uint32_t c, size_t at, uint32_t in_tile) {
    const bool present = first + row < n_keys && c * 8 < cache.stride;
    copy_async_16(to + in_tile, k + at, present);
    if constexpr (kWithV) copy_async_16(to + kKeys * kHeadDim + in_tile, v + at, present);
  };
  if constexpr (kThreads % kChunks == 0) {
    // A thread's chunks lie in one column, rows kRows apart: only the difference is added.
    constexpr uint32_t kRows = kThreads / kChunks;
    const uint32_t row = threadIdx.x / kChunks, c = threadIdx.x % kChunks;
    size_t at = size_t{first + row} * cache.stride + c * 8;
    // Heads of 256 leave no registers for more addresses at once.
    [[maybe_unused]] constexpr int kUnroll = kHeadDim > 128 ? 1 : kKeys / kRows;
#pragma unroll kUnroll
    for (uint32_t r = 0; r < kKeys; r += kRows) {
      copy(row + r, c, at, swizzled<kHeadDim>(row + r, c));
      at += size_t{kRows} * cache.stride;
    }
  } else {
    for (uint32_t i = threadIdx.x; i < kKeys * kChunks; i += kThreads) {
      const uint32_t row = i / kChunks, c = i % kChunks;
      copy(row, c, size_t{first + row} * cache.stride + c * 8, swizzled<kHeadDim>(row, c));
    }
  }
  copy_async_commit();
}

// s [16, kKeys] = Q K^T of a warp's 16 rows, which begin at row `row` of q_tile; a fragment of kept
// where there is one, else from there.
template <int kHeadDim, int kKeys, bool kKeepQ>
__device__ inline void score_tile(uint32_t (*kept)[4], const uint16_t* q_tile, uint32_t row,
                                  const uint16_t* k_tile, float (&s)[kKeys / 8][4]) {
  const FragmentLane lane;
#pragma unroll
  for (int n = 0; n < kKeys / 8; ++n) s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0.0f;
  // Kept fragments are registers, with constant indices. Others must not be loaded far ahead.
  [[maybe_unused]] constexpr int kUnroll = kKeepQ || kHeadDim <= 128 ? kHeadDim / 16 : 2;
#pragma unroll kUnroll
  for (int step = 0; step < kHeadDim / 16; ++step) {
    uint32_t loaded[4];
    if constexpr (!kKeepQ) {
      ldmatrix_x4<false>(
          loaded, q_tile + swizzled<kHeadDim>(row + lane.down_row, 2 * step + lane.down_chunk));
    }
    const uint32_t(&left)[4] = kKeepQ ? kept[kKeepQ ? step : 0] : loaded;
#pragma unroll
    for (int n = 0; n < kKeys / 8; n += 2) {
      uint32_t b[4];
      ldmatrix_x4<false>(
          b, k_tile + swizzled<kHeadDim>(n * 8 + lane.across_row, 2 * step + lane.across_chunk));
      mma_bf16(s[n], left, b[0], b[1]);
      mma_bf16(s[n + 1], left, b[2], b[3]);
    }
  }
}

// Soft-caps scores, as exponents of 2: cap * tanh(s / cap), tanh(x) = 1 - 2 / (1 + exp(2 x)).
template <int kTiles>
__device__ inline void cap_scores(float scale_log2, float softcap, float (&s)[kTiles][4]) {
  const float inner = scale_log2 * 2.0f / softcap, cap = softcap * kLog2e;
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      s[n][e] = cap - 2.0f * cap * reciprocal_approx(1.0f + exp2_approx(s[n][e] * inner));
    }
  }
}

// Sets -infinity where a row does not see the key. pos: of the thread's two rows; t: its lane in a
// row.
template <int kTiles>
__device__ inline void mask_scores(uint32_t first, uint32_t t, const uint32_t (&pos)[2],
                                   uint32_t window, float (&s)[kTiles][4]) {
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const uint32_t key = first + n * 8 + 2 * t + (e & 1);
      if (key > pos[e / 2] || key < first_key(pos[e / 2], window)) s[n][e] = -INFINITY;
    }
  }
}

}  // namespace blend::kernels::cuda
