// Attention of gathered query rows: results, and how parts are put together. CPU reference:
// kernels/cpu/attention.cpp, attention_ref().
#include "cuda/attention_kernel.cuh"

namespace blend::kernels::cuda {
namespace {

// Puts the parts of an m-row together, in their order: a warp each.
constexpr unsigned kCombineWarps = 4;
__global__ void __launch_bounds__(32 * kCombineWarps) combine_kernel(AttentionArgs a) {
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

}  // namespace

cudaError_t prepare_attention() {
  const cudaError_t error = prepare_kernels<Use::results>();
  if (error != cudaSuccess) return error;
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, combine_kernel);
}

void attention(const AttentionRows& rows, const KvView& cache, const AttentionPlan& plan,
               float* scratch, cudaStream_t stream) {
  const AttentionArgs a = arguments_of(rows, cache, plan, scratch);
  launch_attention<Use::results>(a, plan, stream);
  if (plan.splits == 1) return;
  const AttentionKernel combine = &combine_kernel;
  const unsigned blocks = (plan.n_kv_heads * plan.m_rows + kCombineWarps - 1) / kCombineWarps;
  BLEND_LAUNCH(combine, blocks, 32 * kCombineWarps, 0, stream, a);
}

}  // namespace blend::kernels::cuda
