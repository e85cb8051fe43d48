// RoPE, the KV cache and attention.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/recorder.h"
#include "backend/cuda/tensors.h"
#include "backend/outside.h"
#include "cuda/attention.h"
#include "cuda/attention_mass.h"
#include "cuda/attention_tempered.h"

namespace blend::cuda {
namespace {

namespace k = kernels::cuda;

}  // namespace

float CudaBackend::scale_of(const AttentionRule& rule, uint32_t head_dim) {
  if (rule.scale != 0) return rule.scale;
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
}

Result<std::shared_ptr<RopeTable>> CudaBackend::make_rope(const RopeParams& params,
                                                          uint32_t n_positions) {
  const auto scope = enter();
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
  BLEND_ASSIGN(Memory table, device_->allocate(size_t{n_positions} * 2 * n_pairs * sizeof(float)));
  if (n_pairs != 0) {
    BLEND_ASSIGN(const Memory f, stager_->upload(frequency.data(), frequency.size()));
    k::make_rope_table(f.as<double>(), n_pairs, n_positions,
                       static_cast<float>(params.attention_factor), table.as<float>(), stream());
    BLEND_RETURN_IF_ERROR(check_launch("make_rope"));
  }
  return std::shared_ptr<RopeTable>(std::make_shared<CudaRopeTable>(
      std::move(table), n_positions, n_pairs, params.layout == RopeLayout::half_split));
}

Result<std::unique_ptr<KvCache>> CudaBackend::make_kv_cache(const ModelConfig& config,
                                                            uint32_t capacity) {
  const auto scope = enter();
  if (k::padded_head_dim(config.head_dim) == 0) {
    return make_error(
        BLEND_E_UNSUPPORTED,
        "heads of %u elements: the CUDA backend has up to %u; choose the backend 'cpu'",
        config.head_dim, k::kMostHeadDim);
  }
  BLEND_ASSIGN(std::unique_ptr<KvCache> cache, CudaKvCache::create(*device_, config, capacity));
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
  Recorder::covers(*device_, table.n_positions() - 1);
  const auto scope = enter();
  BLEND_ASSIGN(const Stager::Shared at, stager_->share(pos, rows));
  k::rope_rows(table.view(), rows_of(q), head_dim, at.as<uint32_t>(), stream());
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
  Recorder::covers(*device_, limit - 1);
  const auto scope = enter();
  BLEND_ASSIGN(const Stager::Shared slots, stager_->share(pos, rows));
  const k::KvView view = c.layer(layer);
  k::PlacedRows placed;
  placed.k = static_cast<const float*>(kv.data);
  placed.v = placed.k + view.kv_dim();
  placed.row_stride = 2 * view.kv_dim();
  placed.n = rows;
  placed.slots = slots.as<uint32_t>();
  k::place_rows(placed, view, table.view(), stream());
  return check_launch("write_kv");
}

Status CudaBackend::read_kv(const KvCache& cache, uint32_t layer, const RopeTable& rope,
                            uint32_t first, Tensor kv) {
  const auto& c = static_cast<const CudaKvCache&>(cache);
  const auto& table = static_cast<const CudaRopeTable&>(rope);
  const auto rows = static_cast<size_t>(kv.rows);
  const uint32_t limit = std::min(c.capacity(), table.n_positions());
  if (first > limit || rows > limit - first) return outside("read_kv", first + rows, limit);
  const auto scope = enter();
  k::read_rows(c.layer(layer), table.view(), first, rows, static_cast<float*>(kv.data), stream());
  return check_launch("read_kv");
}

Status CudaBackend::place(KvCache& cache, uint32_t layer, const RopeTable& rope,
                          std::span<const StoredRun> runs, const uint8_t* skip,
                          const Correction* correction) {
  const auto& c = static_cast<const CudaKvCache&>(cache);
  const uint32_t limit = std::min(c.capacity(), rope.n_positions());
  for (const StoredRun& run : runs) {
    if (run.first > limit || run.n_rows > limit - run.first) {
      return outside("place", uint64_t{run.first} + run.n_rows, limit);
    }
  }
  if (runs.empty()) return Status::ok();
  const auto scope = enter();
  const k::KvView view = c.layer(layer);
  const k::RopeView turns = static_cast<const CudaRopeTable&>(rope).view();
  k::PlacedRuns table;
  Stager::Shared skipped, drift_row;
  if (skip != nullptr) {
    BLEND_ASSIGN(skipped, stager_->share(skip, c.capacity()));
    table.skip = skipped.as<uint8_t>();
  }
  if (correction != nullptr) {
    BLEND_ASSIGN(drift_row, stager_->share(correction->row, c.capacity()));
    table.drift = static_cast<const float*>(correction->kv.data);
    table.drift_row = drift_row.as<uint32_t>();
  }
  BLEND_ASSIGN(const Stager::Rows staged, stager_->stage(runs, view.kv_dim()));
  // Runs of one kind are placed together.
  Packing packing = Packing::none;
  const auto launch = [&]() -> Status {
    if (packing == Packing::none) {
      k::place_runs(table, view, turns, stream());
    } else {
      k::place_packed_runs(packing, table, view, turns, stream());
    }
    table.n_runs = table.n_rows = 0;
    return check_launch("place");
  };
  for (size_t i = 0; i < runs.size(); ++i) {
    const StoredRun& run = runs[i];
    if (run.n_rows == 0) continue;
    const bool packed = run.packed.packing != Packing::none;
    const uint32_t head_dim = packed ? run.packed.head_dim : 0;
    if (table.n_runs > 0 && (table.full() || run.packed.packing != packing ||
                             run.dtype != table.type || head_dim != table.head_dim)) {
      BLEND_RETURN_IF_ERROR(launch());
    }
    packing = run.packed.packing;
    table.type = run.dtype;
    table.head_dim = head_dim;
    table.add({staged.k(i), staged.v(i), 0, run.first, packed ? run.plane_row : 0,
               packed ? run.packed.n_rows : run.n_rows},
              run.n_rows);
  }
  return launch();
}

Status CudaBackend::move(const KvCache& src, KvCache& dst, const RopeTable& rope,
                         const RowMove& rows) {
  const auto& s = static_cast<const CudaKvCache&>(src);
  const auto& d = static_cast<const CudaKvCache&>(dst);
  const auto& table = static_cast<const CudaRopeTable&>(rope);
  if (rows.from > s.capacity() || rows.n > s.capacity() - rows.from) {
    return outside("move", uint64_t{rows.from} + rows.n, s.capacity());
  }
  if (rows.to > d.capacity() || rows.n > d.capacity() - rows.to) {
    return outside("move", uint64_t{rows.to} + rows.n, d.capacity());
  }
  const auto distance = static_cast<uint64_t>(std::abs(static_cast<int64_t>(rows.turn)));
  if (distance >= table.n_positions()) return outside("move", distance, table.n_positions());
  const auto scope = enter();
  const k::MovedRows moved{rows.from, rows.to, rows.n, static_cast<uint32_t>(distance),
                           rows.turn < 0 ? -1.0f : 1.0f};
  k::move_rows(moved, s.layer(rows.src_layer), d.layer(rows.dst_layer), table.view(), stream());
  return check_launch("move");
}

// Common first part of every kind of attention.
struct CudaBackend::AttentionCall {
  k::KvView view;
  uint32_t last = 0;  // position
  k::AttentionPlan plan;
  Stager::Shared pos;
  k::AttentionRows rows;
};

Result<CudaBackend::AttentionCall> CudaBackend::begin_attention(const char* op,
                                                                const KvCache& cache,
                                                                uint32_t layer,
                                                                const AttentionRule& rule, Tensor q,
                                                                const uint32_t* pos, Tensor out) {
  const auto& c = static_cast<const CudaKvCache&>(cache);
  const auto n = static_cast<size_t>(q.rows);
  AttentionCall call;
  call.last = pos[n - 1];
  if (call.last >= c.capacity()) return outside(op, call.last, c.capacity());
  call.view = c.layer(layer);
  const auto group = static_cast<uint32_t>(static_cast<size_t>(q.cols) / call.view.kv_dim());
  call.plan =
      k::plan_attention(static_cast<uint32_t>(n), group, call.view.n_kv_heads, call.view.head_dim,
                        rule.window == 0 ? call.last : std::min(call.last, rule.window - 1),
                        device_->n_multiprocessors());
  Recorder::covers(*device_, std::min(c.capacity() - 1, k::plan_lasts(call.plan, rule.window)));
  BLEND_ASSIGN(call.pos, stager_->share(pos, n));
  call.rows = {
      rows_of(q),  rows_of(out), call.pos.as<uint32_t>(), scale_of(rule, call.view.head_dim),
      rule.window, rule.softcap};
  return call;
}

Status CudaBackend::attention(const KvCache& cache, uint32_t layer, const AttentionRule& rule,
                              Tensor q, const uint32_t* pos, Tensor out) {
  if (q.rows == 0) return Status::ok();
  const auto scope = enter();
  BLEND_ASSIGN(const AttentionCall call,
               begin_attention("attention", cache, layer, rule, q, pos, out));
  BLEND_ASSIGN(const Memory scratch, device_->allocate(call.plan.scratch_floats() * sizeof(float)));
  k::attention(call.rows, call.view, call.plan, scratch.as<float>(), stream());
  return check_launch("attention");
}

Status CudaBackend::attention_tempered(const KvCache& cache, uint32_t layer,
                                       const AttentionRule& rule, Tensor q, const uint32_t* pos,
                                       const Tempering& tempering, Tensor out, float* mass) {
  const auto rows = static_cast<size_t>(q.rows);
  if (rows == 0) return Status::ok();
  const auto scope = enter();
  BLEND_ASSIGN(const AttentionCall call,
               begin_attention("attention_tempered", cache, layer, rule, q, pos, out));
  const size_t n_heads = static_cast<size_t>(q.cols) / call.view.head_dim;
  BLEND_ASSIGN(const Stager::Shared slots, stager_->share(tempering.slots, size_t{call.last} + 1));
  BLEND_ASSIGN(const Memory scratch,
               device_->allocate(k::tempered_scratch_floats(call.plan) * sizeof(float)));
  Memory masses;  // [rows][n_heads]
  if (mass != nullptr) {
    BLEND_ASSIGN(masses, device_->allocate(rows * n_heads * sizeof(float)));
  }
  const k::Tempered tempered{slots.as<uint8_t>(), tempering.temperature, tempering.scale,
                             masses.as<float>()};
  k::attention_tempered(call.rows, tempered, call.view, call.plan, scratch.as<float>(), stream());
  BLEND_RETURN_IF_ERROR(check_launch("attention_tempered"));
  if (mass == nullptr) return Status::ok();
  std::vector<float> of_heads(rows * n_heads);
  BLEND_RETURN_IF_ERROR(fetch(of_heads.data(), masses.as<void>(), of_heads.size() * sizeof(float)));
  for (size_t i = 0; i < rows; ++i) {
    mass[i] = 0;
    for (size_t head = 0; head < n_heads; ++head) mass[i] += of_heads[i * n_heads + head];
    mass[i] /= static_cast<float>(n_heads);
  }
  return Status::ok();
}

Status CudaBackend::attention_mass(const KvCache& cache, uint32_t layer, const AttentionRule& rule,
                                   Tensor q, const uint32_t* pos, float* mass) {
  if (q.rows == 0) return Status::ok();
  const auto scope = enter();
  BLEND_ASSIGN(const AttentionCall call,
               begin_attention("attention_mass", cache, layer, rule, q, pos, q));
  const uint32_t n_sms = device_->n_multiprocessors();
  const size_t n_slots = size_t{call.last} + 1;
  BLEND_ASSIGN(const Memory sums, stager_->upload(mass, n_slots));
  BLEND_ASSIGN(
      const Memory scratch,
      device_->allocate(k::mass_scratch_floats(call.plan, call.last, n_sms) * sizeof(float)));
  k::attention_mass(call.rows, call.view, call.plan, call.last, n_sms, scratch.as<float>(),
                    sums.as<float>(), stream());
  BLEND_RETURN_IF_ERROR(check_launch("attention_mass"));
  return fetch(mass, sums.as<void>(), n_slots * sizeof(float));
}

}  // namespace blend::cuda
