// Attention mass. CPU reference: kernels/cpu/attention_mass.cpp, attention_mass_ref().
//
// Two passes over Q K^T on tensor cores, which repeats attention's own work: the first is
// attention without its values and gives every m-row's log-sum-exp; in the second a block holds a
// tile of keys, walks the m-rows that see any of them and sums up the probabilities by columns, in
// registers. A launch in between combines the parts of split keys, one after them adds up the
// blocks' results, in their order.
#include "cuda/attention_kernel.cuh"
#include "cuda/attention_mass.h"

namespace blend::kernels::cuda {
namespace {

constexpr unsigned kThreads = 256;
constexpr int kWarps = 4;

// sums[i] = the log-sum-exp of m-row i % m_rows of a KV head, as an exponent of 2.
__global__ void __launch_bounds__(kThreads) log_sum_kernel(AttentionArgs a, float* sums) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x, n = a.cache.n_kv_heads * a.m_rows;
  if (i >= n) return;
  float largest = -INFINITY, weight = 0;
  for (uint32_t s = 0; s < a.splits; ++s) {
    largest = fmaxf(largest, a.stats[2 * (size_t{s} * n + i)]);
  }
  for (uint32_t s = 0; s < a.splits; ++s) {
    const size_t part = size_t{s} * n + i;
    weight += a.stats[2 * part + 1] * exp2f(a.stats[2 * part] - largest);
  }
  sums[i] = largest + log2f(weight);
}

// A block: kKeys keys of a KV head, and one of gridDim.z parts of the m-rows that see any of
// them. parts: [gridDim.z][n_kv_heads][last + 1].
template <int kHeadDim, int kKeys>
__global__ void __launch_bounds__(32 * kWarps, kBlocks<kHeadDim, kWarps>)
    column_kernel(AttentionArgs a, const float* log_sums, uint32_t last, float* parts) {
  constexpr uint32_t kRows = 16 * kWarps;
  __shared__ float columns[kWarps][kKeys];
  auto* const k_tile = reinterpret_cast<uint16_t*>(dynamic_shared());
  uint16_t* const q_tiles = k_tile + kKeys * kHeadDim;  // two: the next is loaded meanwhile

  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const uint32_t first = blockIdx.x * kKeys, kv_head = blockIdx.y, window = a.rows.window;
  stage_kv<kHeadDim, kWarps, kKeys, false>(a.cache, a.cache.k + a.cache.at(kv_head, 0), nullptr,
                                           first, last + 1, k_tile);
  // Tiles of m-rows from the first that sees a key of the block to the last whose window does.
  const uint32_t n_tiles = (a.m_rows + kRows - 1) / kRows;
  uint32_t begin = 0, high = n_tiles;
  while (begin < high) {
    const uint32_t middle = (begin + high) / 2, m = middle * kRows + kRows - 1;
    if (a.rows.pos[(m < a.m_rows ? m : a.m_rows - 1) / a.group] < first) {
      begin = middle + 1;
    } else {
      high = middle;
    }
  }
  uint32_t end = begin;
  high = n_tiles;
  while (end < high) {
    const uint32_t middle = (end + high) / 2;
    if (first_key(a.rows.pos[middle * kRows / a.group], window) < first + kKeys) {
      end = middle + 1;
    } else {
      high = middle;
    }
  }
  const uint32_t each = (end - begin + gridDim.z - 1) / gridDim.z;
  begin = begin + blockIdx.z * each < end ? begin + blockIdx.z * each : end;
  end = begin + each < end ? begin + each : end;

  float sum[kKeys / 8][2];
#pragma unroll
  for (int n = 0; n < kKeys / 8; ++n) sum[n][0] = sum[n][1] = 0.0f;
  if (begin < end) stage_q<kHeadDim, kWarps>(a, begin * kRows, kv_head, q_tiles);
  copy_async_wait<0>();
  __syncthreads();
  for (uint32_t tile = begin; tile < end; ++tile) {
    const uint16_t* const q_tile = q_tiles + (tile - begin) % 2 * kRows * kHeadDim;
    if (tile + 1 < end) {
      stage_q<kHeadDim, kWarps>(a, (tile + 1) * kRows, kv_head,
                                q_tiles + (tile + 1 - begin) % 2 * kRows * kHeadDim);
    }
    const uint32_t warp_m = tile * kRows + warp * 16;
    uint32_t pos[2];
    float log_sum[2];
    for (uint32_t r = 0; r < 2; ++r) {
      const uint32_t m = warp_m + g + 8 * r, there = m < a.m_rows ? m : a.m_rows - 1;
      pos[r] = a.rows.pos[there / a.group];
      // A row that does not exist has no share in anything.
      log_sum[r] = m < a.m_rows ? log_sums[size_t{kv_head} * a.m_rows + m] : INFINITY;
    }
    float s[kKeys / 8][4];
    score_tile<kHeadDim, kKeys, false>(nullptr, q_tile, warp * 16, k_tile, s);
    if (a.rows.softcap != 0.0f) cap_scores(a.scale_log2, a.rows.softcap, s);
    mask_scores(first, t, pos, window, s);
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        sum[n][e & 1] += exp2_approx(fminf(fmaf(s[n][e], a.exponent, -log_sum[e / 2]), 0.0f));
      }
    }
    __syncthreads();  // the next tile is there, and this one may be written again
  }

  // The eight lanes of a column, then the warps.
#pragma unroll
  for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      float x = sum[n][e];
      for (int with = 4; with < 32; with *= 2) x += __shfl_xor_sync(0xffffffffu, x, with);
      if (g == 0) columns[warp][n * 8 + 2 * t + e] = x;
    }
  }
  __syncthreads();
  const uint32_t key = first + threadIdx.x;
  if (threadIdx.x >= kKeys || key > last) return;
  float x = 0;
  for (int w = 0; w < kWarps; ++w) x += columns[w][threadIdx.x];
  parts[(size_t{blockIdx.z} * a.cache.n_kv_heads + kv_head) * (size_t{last} + 1) + key] = x;
}

__global__ void __launch_bounds__(kThreads)
    add_parts_kernel(const float* parts, uint32_t n_parts, size_t n, float* mass) {
  const size_t j = blockIdx.x * size_t{kThreads} + threadIdx.x;
  if (j >= n) return;
  float sum = 0;
  for (uint32_t p = 0; p < n_parts; ++p) sum += parts[p * n + j];
  mass[j] += sum;
}

using ColumnKernel = void (*)(AttentionArgs, const float*, uint32_t, float*);

template <int kHeadDim>
constexpr ColumnKernel kColumnKernel =
    &column_kernel<kHeadDim, static_cast<int>(keys_of_tile(kHeadDim))>;

ColumnKernel column_kernel_of(uint32_t padded) {
  switch (padded) {
    case 32:
      return kColumnKernel<32>;
    case 64:
      return kColumnKernel<64>;
    case 96:
      return kColumnKernel<96>;
    case 128:
      return kColumnKernel<128>;
    default:
      return kColumnKernel<256>;
  }
}

// A tile of keys, and two of m-rows.
size_t column_shared_bytes(uint32_t padded) {
  return size_t{2} * padded * (keys_of_tile(padded) + size_t{2} * 16 * kWarps);
}

uint32_t key_tiles_of(const AttentionPlan& plan, uint32_t last) { return last / plan.keys + 1; }

// Parts of the m-rows: as many blocks as run at once, where there are so few keys.
uint32_t row_parts(const AttentionPlan& plan, uint32_t last, uint32_t n_sms) {
  const uint32_t blocks = key_tiles_of(plan, last) * plan.n_kv_heads;
  const uint32_t tiles = (plan.m_rows + 16 * kWarps - 1) / (16 * kWarps);
  return std::max(1u, std::min(2 * n_sms / blocks, tiles));
}

}  // namespace

cudaError_t prepare_attention_mass() {
  for (const uint32_t padded : {32u, 64u, 96u, 128u, 256u}) {
    const cudaError_t error =
        cudaFuncSetAttribute(column_kernel_of(padded), cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(column_shared_bytes(padded)));
    if (error != cudaSuccess) return error;
  }
  return prepare_kernels<Use::stats>();
}

size_t mass_scratch_floats(const AttentionPlan& plan, uint32_t last, uint32_t n_sms) {
  const size_t n_kv_heads = plan.n_kv_heads;
  return plan.part_floats(false) + n_kv_heads * plan.m_rows +
         row_parts(plan, last, n_sms) * n_kv_heads * (size_t{last} + 1);
}

void attention_mass(const AttentionRows& rows, const KvView& cache, const AttentionPlan& plan,
                    uint32_t last, uint32_t n_sms, float* scratch, float* mass,
                    cudaStream_t stream) {
  const AttentionArgs a = arguments_of(rows, cache, plan, scratch);
  float* const log_sums = scratch + plan.part_floats(false);
  const uint32_t n = plan.n_kv_heads * plan.m_rows;
  float* const parts = log_sums + n;
  const uint32_t n_parts = row_parts(plan, last, n_sms);
  const size_t n_keys = size_t{last} + 1;
  launch_attention<Use::stats>(a, plan, stream);
  const auto log_sum = &log_sum_kernel;
  BLEND_LAUNCH(log_sum, (n + kThreads - 1) / kThreads, kThreads, 0, stream, a, log_sums);
  const ColumnKernel columns = column_kernel_of(plan.padded);
  const dim3 grid(key_tiles_of(plan, last), plan.n_kv_heads, n_parts);
  BLEND_LAUNCH(columns, grid, 32 * kWarps, column_shared_bytes(plan.padded), stream, a, log_sums,
               last, parts);
  const auto add = &add_parts_kernel;
  BLEND_LAUNCH(add, static_cast<unsigned>((n_keys + kThreads - 1) / kThreads), kThreads, 0, stream,
               parts, n_parts * plan.n_kv_heads, n_keys, mass);
}

}  // namespace blend::kernels::cuda
