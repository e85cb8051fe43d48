// Tempered attention (APE). CPU reference: kernels/cpu/attention_tempered.cpp,
// attention_tempered_ref().
//
// It runs for the rows of a question and for decoded ones, so it is written to be plain: a block a
// row and head; its scores, a thread a key; the sums of both kinds of keys; then, a thread an
// element, the weighted values.
#include "cuda/attention_plan.h"
#include "cuda/attention_tempered.h"
#include "cuda/device.cuh"

namespace blend::kernels::cuda {
namespace {

constexpr unsigned kThreads = 256;

// scores: [n * n_heads][last + 1].
template <DType kType>
__global__ void __launch_bounds__(kThreads)
    tempered_kernel(TemperedRows rows, KvView cache, size_t n_heads, float* scores) {
  __shared__ float parts[32];
  const size_t row = blockIdx.x / n_heads, head = blockIdx.x % n_heads;
  const size_t group = n_heads / cache.n_kv_heads;
  const size_t q = row * rows.q.cols + head * cache.head_dim;
  const size_t plane = cache.at(head / group, 0);
  float* const own = scores + blockIdx.x * (size_t{rows.last} + 1);
  const uint32_t begin = first_key(rows.pos[row], rows.window), n_keys = rows.pos[row] + 1;
  float most_tempered = -INFINITY, most_other = -INFINITY;
  for (uint32_t j = begin + threadIdx.x; j < n_keys; j += kThreads) {
    const uint16_t* const key = cache.k + plane + size_t{j} * cache.stride;
    float sum = 0;
    for (uint32_t e = 0; e < cache.head_dim; ++e) {
      sum += load<kType>(rows.q.data, q + e) * from_bf16(key[e]);
    }
    sum *= rows.scale;
    if (rows.softcap != 0.0f) sum = rows.softcap * tanhf(sum / rows.softcap);
    if (rows.tempered[j] != 0) {
      sum /= rows.temperature;
      most_tempered = fmaxf(most_tempered, sum);
    } else {
      most_other = fmaxf(most_other, sum);
    }
    own[j] = sum;
  }
  most_tempered = block_max(most_tempered, parts);
  most_other = block_max(most_other, parts);
  float sum_tempered = 0, sum_other = 0;
  for (uint32_t j = begin + threadIdx.x; j < n_keys; j += kThreads) {
    if (rows.tempered[j] != 0) {
      sum_tempered += own[j] = expf(own[j] - most_tempered);
    } else {
      sum_other += own[j] = expf(own[j] - most_other);
    }
  }
  sum_tempered = block_sum(sum_tempered, parts);
  sum_other = block_sum(sum_other, parts);  // its last barrier also ends the writing of scores
  // A kind without keys has the sum 0 and weighs nothing.
  const float log_tempered =
      sum_tempered == 0.0f ? -INFINITY : rows.sum_scale * (most_tempered + logf(sum_tempered));
  const float log_other = sum_other == 0.0f ? -INFINITY : most_other + logf(sum_other);
  const float most = fmaxf(log_tempered, log_other);
  const float share_tempered = expf(log_tempered - most), share_other = expf(log_other - most);
  const float total = share_tempered + share_other;
  const float of_tempered = sum_tempered == 0.0f ? 0.0f : share_tempered / (total * sum_tempered);
  const float of_other = sum_other == 0.0f ? 0.0f : share_other / (total * sum_other);
  if (rows.mass != nullptr && threadIdx.x == 0) rows.mass[blockIdx.x] = share_tempered / total;
  for (uint32_t e = threadIdx.x; e < cache.head_dim; e += kThreads) {
    float sum = 0;
    for (uint32_t j = begin; j < n_keys; ++j) {
      const float weight = own[j] * (rows.tempered[j] != 0 ? of_tempered : of_other);
      sum += weight * from_bf16(cache.v[plane + size_t{j} * cache.stride + e]);
    }
    store<kType>(rows.out.data, q + e, sum);
  }
}

}  // namespace

size_t tempered_scratch_floats(size_t n, size_t n_heads, uint32_t last) {
  return n * n_heads * (size_t{last} + 1);
}

size_t tempered_rows_per_call(size_t n_heads, uint32_t last, size_t bytes) {
  const size_t n = bytes / (tempered_scratch_floats(1, n_heads, last) * sizeof(float));
  return n == 0 ? 1 : n;
}

void attention_tempered(const TemperedRows& rows, const KvView& cache, float* scratch,
                        cudaStream_t stream) {
  if (rows.q.n == 0) return;
  const size_t n_heads = rows.q.cols / cache.head_dim;
  const auto kernel =
      rows.q.type == DType::f32 ? &tempered_kernel<DType::f32> : &tempered_kernel<DType::bf16>;
  BLEND_LAUNCH(kernel, static_cast<unsigned>(rows.q.n * n_heads), kThreads, 0, stream, rows, cache,
               n_heads, scratch);
}

}  // namespace blend::kernels::cuda
