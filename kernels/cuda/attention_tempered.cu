// Tempered attention (APE). CPU reference: kernels/cpu/attention_tempered.cpp,
// attention_tempered_ref().
//
// Attention over each kind of keys by itself, on tensor cores: twice attention's work, minus the
// tiles whose keys are all of one kind. The two results are combined like the parts of split keys,
// after each kind's sum of exponentials is raised to its power.
#include "cuda/attention_kernel.cuh"
#include "cuda/attention_tempered.h"

namespace blend::kernels::cuda {
namespace {

// The parts of one kind of keys. `largest` and `log_sum` are exponents of 2.
struct Kind {
  const float* stats;  // [splits][n][2]
  const float* sums;   // [splits][n][head_dim]
  float largest = -INFINITY, weight = 0;

  __device__ Kind(const AttentionArgs& a, const float* parts, uint32_t n, uint32_t i)
      : stats(parts), sums(parts + size_t{2} * a.splits * n) {
    for (uint32_t s = 0; s < a.splits; ++s) {
      largest = fmaxf(largest, stats[2 * (size_t{s} * n + i)]);
    }
    if (largest == -INFINITY) return;  // no key is of this kind
    for (uint32_t s = 0; s < a.splits; ++s) {
      const size_t part = size_t{s} * n + i;
      weight += stats[2 * part + 1] * exp2f(stats[2 * part] - largest);
    }
  }
  __device__ float log_sum() const { return weight == 0.0f ? -INFINITY : largest + log2f(weight); }
  // Element d of the weighted mean of the values.
  __device__ float mean(const AttentionArgs& a, uint32_t n, uint32_t i, uint32_t d) const {
    if (weight == 0.0f) return 0.0f;
    float sum = 0;
    for (uint32_t s = 0; s < a.splits; ++s) {
      const size_t part = size_t{s} * n + i;
      sum += sums[part * a.cache.head_dim + d] * exp2f(stats[2 * part] - largest);
    }
    return sum / weight;
  }
};

// A warp an m-row. others: the parts of the keys that are not tempered.
__global__ void __launch_bounds__(32 * kCombineWarps)
    combine_kinds_kernel(AttentionArgs a, const float* tempered, const float* others,
                         float sum_scale, float* mass) {
  const uint32_t head_dim = a.cache.head_dim, n = a.cache.n_kv_heads * a.m_rows;
  const uint32_t i = blockIdx.x * kCombineWarps + threadIdx.x / 32;
  if (i >= n) return;
  const Kind warm(a, tempered, n, i), plain(a, others, n, i);
  // A kind without keys weighs nothing, whatever its power.
  const float log_warm = warm.weight == 0.0f ? -INFINITY : sum_scale * warm.log_sum();
  const float log_plain = plain.log_sum(), most = fmaxf(log_warm, log_plain);
  const float of_warm = exp2f(log_warm - most), of_plain = exp2f(log_plain - most);
  const float share = of_warm / (of_warm + of_plain);
  const uint32_t m = i % a.m_rows, head = i / a.m_rows * a.group + m % a.group;
  if (mass != nullptr && threadIdx.x % 32 == 0) {
    mass[size_t{m / a.group} * a.cache.n_kv_heads * a.group + head] = share;
  }
  const size_t row = m / a.group * a.rows.out.cols + size_t{head} * head_dim;
  for (uint32_t d = threadIdx.x % 32; d < head_dim; d += 32) {
    const float x = share * warm.mean(a, n, i, d) + (1.0f - share) * plain.mean(a, n, i, d);
    store_two(a.rows.out, row + d, 1, x, 0.0f);
  }
}

}  // namespace

cudaError_t prepare_attention_tempered() {
  const cudaError_t error = prepare_kernels<Use::of_kind>();
  if (error != cudaSuccess) return error;
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, combine_kinds_kernel);
}

void attention_tempered(const AttentionRows& rows, const Tempered& tempered, const KvView& cache,
                        const AttentionPlan& plan, float* scratch, cudaStream_t stream) {
  float* const others = scratch + plan.part_floats();
  AttentionArgs a = arguments_of(rows, cache, plan, others);
  a.tempered = tempered.slots;
  a.kind = false;
  launch_attention<Use::of_kind>(a, plan, stream);
  AttentionArgs warm = arguments_of(rows, cache, plan, scratch);
  warm.tempered = tempered.slots;
  warm.kind = true;
  warm.exponent /= tempered.temperature;
  launch_attention<Use::of_kind>(warm, plan, stream);
  const auto combine = &combine_kinds_kernel;
  const unsigned blocks = (plan.n_kv_heads * plan.m_rows + kCombineWarps - 1) / kCombineWarps;
  BLEND_LAUNCH(combine, blocks, 32 * kCombineWarps, 0, stream, a, scratch, others,
               tempered.sum_scale, tempered.mass);
}

}  // namespace blend::kernels::cuda
