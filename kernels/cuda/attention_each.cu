// Attention of rows that each see a cache of their own. CPU reference: kernels/cpu/attention.cpp,
// attention_ref(), row by row.
#include "cuda/attention_each.h"
#include "cuda/attention_kernel.cuh"

namespace blend::kernels::cuda {
namespace {

// Some 1.5 KiB of the 4 that a launch may have.
struct EachArgs {
  StepRows rows;
  AttentionArgs all;  // common to the rows; scratch: that of the first part
};

// The arguments of row i by itself.
__device__ inline AttentionArgs arguments_of_row(const EachArgs& each, uint32_t i) {
  const StepRows::Row& at = each.rows.row[i];
  AttentionArgs a = each.all;
  a.cache = each.rows.cache(i);
  const auto move = [&](Rows& x) {
    const size_t bytes = x.type == DType::f32 ? 4 : 2;
    x.data = static_cast<unsigned char*>(x.data) + at.row * x.cols * bytes;
  };
  move(a.rows.q);
  move(a.rows.out);
  a.splits = each.rows.parts(i);
  const size_t before = size_t{at.begin} * a.cache.n_kv_heads * a.m_rows;
  a.stats += 2 * before;
  a.sums += before * a.cache.head_dim;
  return a;
}

// Blocks (tile of m-rows, KV head, part of all rows').
template <int kHeadDim, int kWarps, int kKeys>
__global__ void __launch_bounds__(32 * kWarps, kBlocks<kHeadDim, kWarps>)
    attention_each_kernel(const __grid_constant__ EachArgs each) {
  uint32_t low = 0, high = each.rows.n;  // the last row that begins at this part or before it
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    (each.rows.row[middle].begin <= blockIdx.z ? low : high) = middle;
  }
  const uint32_t pos = each.rows.row[low].pos;
  attend<kHeadDim, kWarps, kKeys, Use::results>(arguments_of_row(each, low),
                                                blockIdx.z - each.rows.row[low].begin,
                                                [&](uint32_t) { return pos; });
}

// One warp for each m-row of a row and KV head.
__global__ void __launch_bounds__(32 * kCombineWarps)
    combine_each_kernel(const __grid_constant__ EachArgs each) {
  const uint32_t i = blockIdx.x * kCombineWarps + threadIdx.x / 32;
  const uint32_t of_row = each.rows.shape.n_kv_heads * each.all.m_rows, row = i / of_row;
  if (row >= each.rows.n || each.rows.parts(row) == 1) return;
  combine(arguments_of_row(each, row), i % of_row);
}

using EachKernel = void (*)(EachArgs);

template <int kHeadDim>
EachKernel each_kernel_of(uint32_t warps) {
  constexpr int kKeys = static_cast<int>(keys_of_tile(kHeadDim));
  return warps == 1 ? &attention_each_kernel<kHeadDim, 1, kKeys>
                    : &attention_each_kernel<kHeadDim, 4, kKeys>;
}

EachKernel each_kernel_of(uint32_t padded, uint32_t warps) {
  switch (padded) {
    case 32:
      return each_kernel_of<32>(warps);
    case 64:
      return each_kernel_of<64>(warps);
    case 96:
      return each_kernel_of<96>(warps);
    case 128:
      return each_kernel_of<128>(warps);
    default:
      return each_kernel_of<256>(warps);
  }
}

// The plan of all parts together.
AttentionPlan plan_of_all(const StepRows& rows, AttentionPlan plan) {
  plan.splits = rows.n_parts;
  return plan;
}

}  // namespace

cudaError_t prepare_attention_each() {
  return prepare_each_of(
      [](uint32_t padded, uint32_t warps) { return each_kernel_of(padded, warps); });
}

size_t each_scratch_floats(const StepRows& rows, const AttentionPlan& plan) {
  return rows.n_parts == rows.n ? 0 : plan_of_all(rows, plan).part_floats();
}

void attention_each(const StepRows& rows, const AttentionRows& all, const AttentionPlan& plan,
                    float* scratch, cudaStream_t stream) {
  if (rows.n == 0) return;
  EachArgs each{rows, {}};
  AttentionRows one = all;
  one.q.n = one.out.n = 1;
  each.all = arguments_of(one, rows.shape, plan_of_all(rows, plan), scratch);
  const EachKernel kernel = each_kernel_of(plan.padded, plan.warps);
  const dim3 grid(plan.m_tiles, plan.n_kv_heads, rows.n_parts);
  BLEND_LAUNCH(kernel, grid, 32 * plan.warps, plan.shared_bytes(), stream, each);
  if (rows.n_parts == rows.n) return;
  const EachKernel combine_all = &combine_each_kernel;
  const unsigned blocks =
      (rows.n * plan.n_kv_heads * plan.m_rows + kCombineWarps - 1) / kCombineWarps;
  BLEND_LAUNCH(combine_all, blocks, 32 * kCombineWarps, 0, stream, each);
}

}  // namespace blend::kernels::cuda
