// Attention of gathered query rows: results. CPU reference:
// kernels/cpu/attention.cpp, attention_ref().
#include "cuda/attention_kernel.cuh"

namespace blend::kernels::cuda {
namespace {

__global__ void __launch_bounds__(32 * kCombineWarps) combine_kernel(AttentionArgs a) {
  const uint32_t i = blockIdx.x * kCombineWarps + threadIdx.x / 32;
  if (i < a.cache.n_kv_heads * a.m_rows) combine(a, i);
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
