#include "backend/cuda/packed_qkv.h"

#include <algorithm>

#include "backend/cuda/recorder.h"
#include "backend/cuda/tensors.h"
#include "backend/outside.h"
#include "cuda/qkv_rows.h"

namespace blend::cuda {
namespace {

namespace k = kernels::cuda;

}  // namespace

Result<std::unique_ptr<Weight>> CudaPackedQkv::part_of(const Weight& matrix, int64_t first,
                                                       int64_t rows) {
  const auto& whole = static_cast<const CudaMatrix&>(matrix);
  if (first < 0 || rows < 0 || first > whole.out() || rows > whole.out() - first) {
    return make_error(BLEND_E_INTERNAL, "%lld rows from %lld on of a matrix of %lld",
                      static_cast<long long>(rows), static_cast<long long>(first),
                      static_cast<long long>(whole.out()));
  }
  return std::unique_ptr<Weight>(new CudaMatrix(whole, first, rows));
}

Status CudaPackedQkv::project_stacked(const QkvWeights& weights, Tensor x, Tensor all, int64_t rows,
                                      int64_t q_dim, const k::KvView& view) {
  BLEND_RETURN_IF_ERROR(backend_.matmul(*weights.stacked, x, all, false));
  all.rows = rows;
  if (weights.bias != nullptr) BLEND_RETURN_IF_ERROR(backend_.add_bias(*weights.bias, all));
  // K's heads follow those of Q in every row.
  Tensor keys = all;
  keys.data = static_cast<float*>(all.data) + q_dim;
  const auto norm = [&](Tensor heads, uint32_t n_heads, const Weight* w) {
    return w == nullptr ? Status::ok() : backend_.norm_heads(heads, n_heads, *w, weights.eps);
  };
  BLEND_RETURN_IF_ERROR(norm(all, static_cast<uint32_t>(q_dim) / view.head_dim, weights.q_norm));
  return norm(keys, view.n_kv_heads, weights.k_norm);
}

Status CudaPackedQkv::project(const QkvWeights& weights, Tensor x, const QkvTarget& to) {
  const auto& cache = static_cast<const CudaKvCache&>(*to.cache);
  const auto& q_rope = static_cast<const CudaRopeTable&>(*to.q_rope);
  const auto& k_rope = static_cast<const CudaRopeTable&>(*to.k_rope);
  const k::KvView view = cache.layer(to.layer);
  const auto kv_dim = static_cast<int64_t>(view.kv_dim());
  const Tensor &q = to.q, &kv = to.kv, &all = to.scratch;
  if (q.cols % view.head_dim != 0 || kv.cols != 2 * kv_dim || all.cols != q.cols + 2 * kv_dim ||
      q.rows > x.rows || kv.rows != q.rows || all.rows != x.rows || type_of(q) != DType::bf16 ||
      type_of(kv) != DType::f32 || type_of(all) != DType::f32) {
    return make_error(BLEND_E_INTERNAL, "project_qkv: rows of another shape or type");
  }
  const auto rows = static_cast<size_t>(q.rows);
  if (rows == 0) return Status::ok();
  const uint32_t limit = std::min({cache.capacity(), q_rope.n_positions(), k_rope.n_positions()});
  for (size_t i = 0; i < rows; ++i) {
    if (to.pos[i] >= limit) return outside("project_qkv", to.pos[i], limit);
  }
  Recorder::covers(core_.device(), limit - 1);
  const auto scope = core_.enter();
  BLEND_RETURN_IF_ERROR(project_stacked(weights, x, all, q.rows, q.cols, view));
  BLEND_ASSIGN(const Stager::Shared pos, core_.stager().share(to.pos, rows));
  k::place_qkv({static_cast<const float*>(all.data), rows, static_cast<uint32_t>(q.cols),
                pos.as<uint32_t>()},
               q_rope.view(), k_rope.view(), view, static_cast<uint16_t*>(q.data),
               static_cast<float*>(kv.data), core_.stream());
  return check_launch("project_qkv");
}

}  // namespace blend::cuda
