// The rows of a step that several sequences share: everything but products is one launch for
// all of them, with their caches, positions and tables as its arguments.
#include <algorithm>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/packed_qkv.h"
#include "backend/cuda/recorder.h"
#include "backend/cuda/tensors.h"
#include "backend/outside.h"
#include "cuda/attention_each.h"
#include "cuda/qkv_rows.h"

namespace blend::cuda {
namespace {

namespace k = kernels::cuda;

bool same_shape(const k::KvView& a, const k::KvView& b) {
  return a.n_kv_heads == b.n_kv_heads && a.head_dim == b.head_dim && a.stride == b.stride;
}
bool same_turns(const k::RopeView& a, const k::RopeView& b) {
  return a.half == b.half && a.halves == b.halves;
}

// Positions are fixed in these launches.
Status check_not_recorded(const Device& device, const char* op) {
  if (Recorder::of(device) == nullptr) return Status::ok();
  return make_error(BLEND_E_INTERNAL, "%s cannot be recorded", op);
}

}  // namespace

Status CudaPackedQkv::project_each(const QkvWeights& weights, uint32_t layer, Tensor x,
                                   std::span<const RowInto> rows, Tensor q, Tensor scratch) {
  if (rows.empty()) return Status::ok();
  BLEND_RETURN_IF_ERROR(check_not_recorded(core_.device(), "project_qkv_each"));
  const auto view_of = [&](const RowInto& r) {
    return static_cast<const CudaKvCache&>(*r.cache).layer(layer);
  };
  const auto turns_of = [](const RopeTable* rope) {
    return static_cast<const CudaRopeTable&>(*rope).view();
  };
  const k::KvView view = view_of(rows[0]);
  const k::RopeView q_turns = turns_of(rows[0].q_rope), k_turns = turns_of(rows[0].k_rope);
  if (q.cols % view.head_dim != 0 ||
      scratch.cols != q.cols + static_cast<int64_t>(2 * view.kv_dim()) || q.rows > x.rows ||
      scratch.rows != x.rows || type_of(q) != DType::bf16 || type_of(scratch) != DType::f32) {
    return make_error(BLEND_E_INTERNAL, "project_qkv_each: rows of another shape or type");
  }
  for (const RowInto& r : rows) {
    const uint32_t limit =
        std::min({r.cache->capacity(), r.q_rope->n_positions(), r.k_rope->n_positions()});
    if (r.pos >= limit) return outside("project_qkv_each", r.pos, limit);
    if (r.row >= q.rows || !same_shape(view_of(r), view) ||
        !same_turns(turns_of(r.q_rope), q_turns) || !same_turns(turns_of(r.k_rope), k_turns)) {
      return make_error(BLEND_E_INTERNAL, "project_qkv_each: row %u is not of this model", r.row);
    }
  }
  const auto scope = core_.enter();
  BLEND_RETURN_IF_ERROR(project_stacked(weights, x, scratch, q.rows, q.cols, view));
  k::StepRows table;
  table.shape = view;
  const auto launch = [&]() -> Status {
    k::place_step(table, static_cast<const float*>(scratch.data), static_cast<uint32_t>(q.cols),
                  q_turns, k_turns, static_cast<uint16_t*>(q.data), core_.stream());
    table.n = 0;
    return check_launch("project_qkv_each");
  };
  for (const RowInto& r : rows) {
    if (table.full()) BLEND_RETURN_IF_ERROR(launch());
    table.add({view_of(r).k, turns_of(r.q_rope).table, turns_of(r.k_rope).table,
               r.cache->capacity(), r.pos, r.row, 0});
  }
  return launch();
}

Status CudaBackend::attention_each(uint32_t layer, const AttentionRule& rule, Tensor q,
                                   std::span<const RowOver> rows) {
  if (rows.empty()) return Status::ok();
  BLEND_RETURN_IF_ERROR(check_not_recorded(core_.device(), "attention_each"));
  const auto view_of = [&](const RowOver& r) {
    return static_cast<const CudaKvCache&>(*r.cache).layer(layer);
  };
  const k::KvView view = view_of(rows[0]);
  for (const RowOver& r : rows) {
    if (r.pos >= r.cache->capacity()) return outside("attention_each", r.pos, r.cache->capacity());
    if (r.row >= q.rows || !same_shape(view_of(r), view)) {
      return make_error(BLEND_E_INTERNAL, "attention_each: row %u is not of this model", r.row);
    }
  }
  const auto scope = core_.enter();
  const auto group = static_cast<uint32_t>(static_cast<size_t>(q.cols) / view.kv_dim());
  k::AttentionRows all = {rows_of(q),
                          rows_of(q),
                          nullptr,
                          rule.scale_of(view.head_dim),
                          rule.window,
                          rule.softcap,
                          elements_of(rule.sinks)};
  k::AttentionPlan plan;
  k::StepRows table;
  table.shape = view;
  const auto launch = [&]() -> Status {
    BLEND_ASSIGN(const Memory scratch,
                 core_.device().allocate(k::each_scratch_floats(table, plan) * sizeof(float)));
    k::attention_each(table, all, plan, scratch.as<float>(), core_.stream());
    table.n = table.n_parts = 0;
    return check_launch("attention_each");
  };
  for (const RowOver& r : rows) {
    if (table.full()) BLEND_RETURN_IF_ERROR(launch());
    // Planned as attention() does: the parts that it is cut into determine its bits.
    plan = k::plan_attention(1, group, view.n_kv_heads, view.head_dim,
                             rule.window == 0 ? r.pos : std::min(r.pos, rule.window - 1),
                             core_.device().n_multiprocessors());
    table.add({view_of(r).k, nullptr, nullptr, r.cache->capacity(), r.pos, r.row, 0}, plan.splits);
  }
  return launch();
}

}  // namespace blend::cuda
