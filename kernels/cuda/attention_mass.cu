// Where attention goes. CPU reference: kernels/cpu/attention_mass.cpp, attention_mass_ref().
//
// It runs once a fuse, for the rows of a question, so it is written to be plain: scores of a row
// and head, a thread a key; then their sum; then, a thread a key, the probabilities of all rows and
// heads in one order.
#include "cuda/attention_mass.h"
#include "cuda/attention_plan.h"
#include "cuda/device.cuh"

namespace blend::kernels::cuda {
namespace {

constexpr unsigned kThreads = 256;

// scores: [n * n_heads][last + 1]; stats: [n * n_heads][2] = largest score, 1 / sum.
template <DType kType>
__global__ void __launch_bounds__(kThreads)
    score_kernel(MassRows rows, KvView cache, size_t n_heads, float* scores, float* stats) {
  __shared__ float parts[32];
  const size_t row = blockIdx.x / n_heads, head = blockIdx.x % n_heads;
  const size_t group = n_heads / cache.n_kv_heads;
  const size_t q = row * rows.q.cols + head * cache.head_dim;
  const uint16_t* const keys = cache.k + cache.at(head / group, 0);
  float* const own = scores + blockIdx.x * (size_t{rows.last} + 1);
  const uint32_t begin = first_key(rows.pos[row], rows.window), n_keys = rows.pos[row] + 1;
  float largest = -INFINITY;
  for (uint32_t j = begin + threadIdx.x; j < n_keys; j += kThreads) {
    float sum = 0;
    for (uint32_t e = 0; e < cache.head_dim; ++e) {
      sum += load<kType>(rows.q.data, q + e) * from_bf16(keys[size_t{j} * cache.stride + e]);
    }
    own[j] = sum * rows.scale;
    if (rows.softcap != 0.0f) own[j] = rows.softcap * tanhf(own[j] / rows.softcap);
    largest = fmaxf(largest, own[j]);
  }
  largest = block_max(largest, parts);
  float sum = 0;
  for (uint32_t j = begin + threadIdx.x; j < n_keys; j += kThreads) sum += expf(own[j] - largest);
  sum = block_sum(sum, parts);
  if (threadIdx.x == 0) {
    stats[size_t{blockIdx.x} * 2] = largest;
    stats[size_t{blockIdx.x} * 2 + 1] = 1.0f / sum;
  }
}

__global__ void __launch_bounds__(kThreads)
    mass_kernel(MassRows rows, size_t n_heads, const float* scores, const float* stats,
                float* mass) {
  const uint32_t j = blockIdx.x * kThreads + threadIdx.x;
  if (j > rows.last) return;
  float sum = 0;
  for (size_t row = 0; row < rows.q.n; ++row) {
    if (j > rows.pos[row] || j < first_key(rows.pos[row], rows.window)) continue;
    for (size_t i = row * n_heads; i < (row + 1) * n_heads; ++i) {
      sum += expf(scores[i * (size_t{rows.last} + 1) + j] - stats[2 * i]) * stats[2 * i + 1];
    }
  }
  mass[j] += sum;
}

}  // namespace

size_t mass_scratch_floats(size_t n, size_t n_heads, uint32_t last) {
  return n * n_heads * (size_t{last} + 3);
}

size_t mass_rows_per_call(size_t n_heads, uint32_t last, size_t bytes) {
  const size_t n = bytes / (mass_scratch_floats(1, n_heads, last) * sizeof(float));
  return n == 0 ? 1 : n;
}

void attention_mass(const MassRows& rows, const KvView& cache, float* scratch, float* mass,
                    cudaStream_t stream) {
  if (rows.q.n == 0) return;
  const size_t n_heads = rows.q.cols / cache.head_dim;
  float* const scores = scratch;
  float* const stats = scratch + rows.q.n * n_heads * (size_t{rows.last} + 1);
  const auto score =
      rows.q.type == DType::f32 ? &score_kernel<DType::f32> : &score_kernel<DType::bf16>;
  BLEND_LAUNCH(score, static_cast<unsigned>(rows.q.n * n_heads), kThreads, 0, stream, rows, cache,
               n_heads, scores, stats);
  const auto sum = &mass_kernel;
  BLEND_LAUNCH(sum, rows.last / kThreads + 1, kThreads, 0, stream, rows, n_heads, scores, stats,
               mass);
}

}  // namespace blend::kernels::cuda
