// The k largest scores, in ascending order of their indices. CPU reference: kernels/cpu/top_k.cpp,
// top_k_ref().
//
// One block: a prompt has some ten thousand rows, and a second launch would cost more than they do.
// Scores become keys whose unsigned order is the scores' descending order. Four passes over eight
// bits each, the highest first, narrow down the k-th key: `prefix`. All keys below it are chosen,
// and the first `ties` of those equal to it. A last pass, in order, writes the chosen ones.
#include "cuda/device.cuh"
#include "cuda/selection.h"

namespace blend::kernels::cuda {
namespace {

constexpr unsigned kThreads = 512;  // with more, registers spill on sm_86
constexpr unsigned kBuckets = 256;

// As in kernels/cpu/top_k.cpp.
__device__ inline uint32_t descending_key(float score) {
  if (score != score) return 0;
  const uint32_t bits = __float_as_uint(score + 0.0f);  // -0 becomes +0
  const uint32_t ascending = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return ~ascending;
}

// Exclusive prefix sum over the block of a small count; *total: the sum. sums: shared [32].
__device__ inline uint32_t block_prefix(uint32_t x, uint32_t* sums, uint32_t* total) {
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  uint32_t inclusive = x;
  for (unsigned by = 1; by < 32; by *= 2) {
    const uint32_t below = __shfl_up_sync(0xffffffffu, inclusive, by);
    if (lane >= by) inclusive += below;
  }
  if (lane == 31) sums[warp] = inclusive;
  __syncthreads();
  uint32_t before = 0, all = 0;
  for (unsigned w = 0; w < kThreads / 32; ++w) {
    if (w < warp) before += sums[w];
    all += sums[w];
  }
  __syncthreads();
  *total = all;
  return before + inclusive - x;
}

__global__ void __launch_bounds__(kThreads)
    top_k_kernel(const float* scores, uint32_t n, uint32_t k, uint32_t* out) {
  __shared__ uint32_t histogram[kBuckets];
  __shared__ uint32_t sums[32];
  __shared__ uint32_t found[2];  // the bucket of the k-th key, and the keys before that bucket
  uint32_t prefix = 0, left = k;
  for (int shift = 24; shift >= 0; shift -= 8) {
    if (threadIdx.x < kBuckets) histogram[threadIdx.x] = 0;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < n; i += kThreads) {
      const uint32_t key = descending_key(scores[i]);
      // The bits above this pass's, which must be those found so far.
      if (shift == 24 || key >> (shift + 8) == prefix >> (shift + 8)) {
        atomicAdd(&histogram[key >> shift & 255u], 1u);
      }
    }
    __syncthreads();
    const uint32_t count = threadIdx.x < kBuckets ? histogram[threadIdx.x] : 0;
    uint32_t total = 0;
    const uint32_t before = block_prefix(count, sums, &total);
    if (before < left && left <= before + count) {
      found[0] = threadIdx.x;
      found[1] = before;
    }
    __syncthreads();
    prefix |= found[0] << shift;
    left -= found[1];
    __syncthreads();
  }
  // `left` of the keys equal to `prefix` are chosen.
  uint32_t written = 0, ties = 0;
  for (uint32_t first = 0; first < n; first += kThreads) {
    const uint32_t i = first + threadIdx.x;
    const uint32_t key = i < n ? descending_key(scores[i]) : UINT32_MAX;
    const bool tie = i < n && key == prefix;
    uint32_t n_ties = 0, n_chosen = 0;
    const uint32_t tie_rank = ties + block_prefix(tie ? 1 : 0, sums, &n_ties);
    const bool chosen = (i < n && key < prefix) || (tie && tie_rank < left);
    const uint32_t at = written + block_prefix(chosen ? 1 : 0, sums, &n_chosen);
    if (chosen) out[at] = i;
    ties += n_ties;
    written += n_chosen;
  }
}

}  // namespace

void top_k(const float* scores, uint32_t n, uint32_t k, uint32_t* out, cudaStream_t stream) {
  if (k == 0) return;
  const auto kernel = &top_k_kernel;
  BLEND_LAUNCH(kernel, 1, kThreads, 0, stream, scores, n, k, out);
}

}  // namespace blend::kernels::cuda
