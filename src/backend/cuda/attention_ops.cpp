// RoPE, the KV cache and attention.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "backend/cuda/attention_call.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/recorder.h"
#include "backend/cuda/tensors.h"
#include "backend/outside.h"

namespace blend::cuda {
namespace {

namespace k = kernels::cuda;

}  // namespace

Result<std::shared_ptr<RopeTable>> CudaBackend::make_rope(const RopeParams& params,
                                                          uint32_t n_positions) {
  const auto scope = core_.enter();
  const uint32_t n_pairs = params.rotary_dim / 2;
  if (!params.freq_factors.empty() && params.freq_factors.size() != n_pairs) {
    return make_error(BLEND_E_FORMAT, "RoPE has %zu frequency factors for %u frequencies",
                      params.freq_factors.size(), n_pairs);
  }
  std::vector<double> frequency(n_pairs);
  for (uint32_t i = 0; i < n_pairs; ++i) {
    frequency[i] = std::pow(params.theta, -2.0 * i / params.rotary_dim) / params.linear_scale;
    if (!params.freq_factors.empty()) frequency[i] /= static_cast<double>(params.freq_factors[i]);
  }
  BLEND_ASSIGN(Memory table,
               core_.device().allocate(size_t{n_positions} * 2 * n_pairs * sizeof(float)));
  if (n_pairs != 0) {
    BLEND_ASSIGN(const Memory f, core_.stager().upload(frequency.data(), frequency.size()));
    const k::RopeFactor factor{static_cast<float>(params.attention_factor), params.q_growth,
                               params.q_growth_rows};
    k::make_rope_table(f.as<double>(), n_pairs, n_positions, factor, table.as<float>(),
                       core_.stream());
    BLEND_RETURN_IF_ERROR(check_launch("make_rope"));
  }
  return std::shared_ptr<RopeTable>(std::make_shared<CudaRopeTable>(
      std::move(table), n_positions, n_pairs, params.layout == RopeLayout::half_split));
}

Result<std::unique_ptr<KvCache>> CudaBackend::make_kv_cache(const ModelConfig& config,
                                                            uint32_t capacity) {
  const auto scope = core_.enter();
  if (k::padded_head_dim(config.head_dim) == 0) {
    return make_error(
        BLEND_E_UNSUPPORTED,
        "heads of %u elements: the CUDA backend has up to %u; choose the backend 'cpu'",
        config.head_dim, k::kMostHeadDim);
  }
  BLEND_ASSIGN(std::unique_ptr<KvCache> cache,
               CudaKvCache::create(core_.device(), config, capacity));
  return cache;
}

Status CudaBackend::rope_q(const RopeTable& rope, const uint32_t* pos, uint32_t head_dim,
                           Tensor q) {
  const auto& table = static_cast<const CudaRopeTable&>(rope);
  const auto rows = static_cast<size_t>(q.rows);
  if (rows == 0) return Status::ok();
  for (size_t i = 0; i < rows; ++i) {
    if (pos[i] >= table.n_positions()) return outside("rope_q", pos[i], table.n_positions());
  }
  Recorder::covers(core_.device(), table.n_positions() - 1);
  const auto scope = core_.enter();
  BLEND_ASSIGN(const Stager::Shared at, core_.stager().share(pos, rows));
  k::rope_rows(table.view(), rows_of(q), head_dim, at.as<uint32_t>(), core_.stream());
  return check_launch("rope_q");
}

Status CudaBackend::write_kv(KvCache& cache, uint32_t layer, const RopeTable& rope, Tensor kv,
                             const uint32_t* pos) {
  const auto& c = static_cast<const CudaKvCache&>(cache);
  const auto& table = static_cast<const CudaRopeTable&>(rope);
  const auto rows = static_cast<size_t>(kv.rows);
  if (rows == 0) return Status::ok();
  const uint32_t limit = std::min(c.capacity(), table.n_positions());
  for (size_t i = 0; i < rows; ++i) {
    if (pos[i] >= limit) return outside("write_kv", pos[i], limit);
  }
  Recorder::covers(core_.device(), limit - 1);
  const auto scope = core_.enter();
  BLEND_ASSIGN(const Stager::Shared slots, core_.stager().share(pos, rows));
  const k::KvView view = c.layer(layer);
  k::PlacedRows placed;
  placed.k = static_cast<const float*>(kv.data);
  placed.v = placed.k + view.kv_dim();
  placed.row_stride = 2 * view.kv_dim();
  placed.n = rows;
  placed.slots = slots.as<uint32_t>();
  k::place_rows(placed, view, table.view(), core_.stream());
  return check_launch("write_kv");
}

Status CudaBackend::move_rows(const KvCache& src, KvCache& dst, const RopeTable& rope,
                              const RowMove& rows) {
  const auto& s = static_cast<const CudaKvCache&>(src);
  const auto& d = static_cast<const CudaKvCache&>(dst);
  const auto& table = static_cast<const CudaRopeTable&>(rope);
  if (rows.from > s.capacity() || rows.n > s.capacity() - rows.from) {
    return outside("move_rows", uint64_t{rows.from} + rows.n, s.capacity());
  }
  if (rows.to > d.capacity() || rows.n > d.capacity() - rows.to) {
    return outside("move_rows", uint64_t{rows.to} + rows.n, d.capacity());
  }
  const auto distance = static_cast<uint64_t>(std::abs(static_cast<int64_t>(rows.turn)));
  if (distance >= table.n_positions()) return outside("move_rows", distance, table.n_positions());
  const auto scope = core_.enter();
  const k::MovedRows moved{rows.from, rows.to, rows.n, static_cast<uint32_t>(distance),
                           rows.turn < 0 ? -1.0f : 1.0f};
  k::move_rows(moved, s.layer(rows.src_layer), d.layer(rows.dst_layer), table.view(),
               core_.stream());
  return check_launch("move_rows");
}

Status CudaBackend::attention(const KvCache& cache, uint32_t layer, const AttentionRule& rule,
                              Tensor q, const uint32_t* pos, Tensor out) {
  if (q.rows == 0) return Status::ok();
  const auto scope = core_.enter();
  BLEND_ASSIGN(const AttentionCall call,
               begin_attention(core_, "attention", cache, layer, rule, q, pos, out));
  BLEND_ASSIGN(const Memory scratch,
               core_.device().allocate(call.plan.scratch_floats() * sizeof(float)));
  k::attention(call.rows, call.view, call.plan, scratch.as<float>(), core_.stream());
  return check_launch("attention");
}

}  // namespace blend::cuda
