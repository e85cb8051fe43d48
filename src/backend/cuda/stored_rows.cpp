// Stored rows into a KV cache and out of it.
#include <algorithm>

#include "backend/cuda/fusion_ops.h"
#include "backend/cuda/tensors.h"
#include "backend/outside.h"
#include "cuda/packed_rows.h"

namespace blend::cuda {
namespace {

namespace k = kernels::cuda;

}  // namespace

Status CudaFusionOps::scatter(KvCache& cache, uint32_t layer, const RopeTable& rope,
                              std::span<const StoredRun> runs, const uint8_t* skip,
                              const Correction* correction) {
  const auto& c = static_cast<const CudaKvCache&>(cache);
  const uint32_t limit = std::min(c.capacity(), rope.n_positions());
  for (const StoredRun& run : runs) {
    if (run.first > limit || run.n_rows > limit - run.first) {
      return outside("scatter", uint64_t{run.first} + run.n_rows, limit);
    }
  }
  if (runs.empty()) return Status::ok();
  const auto scope = core_.enter();
  const k::KvView view = c.layer(layer);
  const k::RopeView turns = static_cast<const CudaRopeTable&>(rope).view();
  k::PlacedRuns table;
  Stager::Shared skipped, drift_row;
  if (skip != nullptr) {
    BLEND_ASSIGN(skipped, core_.stager().share(skip, c.capacity()));
    table.skip = skipped.as<uint8_t>();
  }
  if (correction != nullptr) {
    BLEND_ASSIGN(drift_row, core_.stager().share(correction->row, c.capacity()));
    table.drift = static_cast<const float*>(correction->kv.data);
    table.drift_row = drift_row.as<uint32_t>();
  }
  BLEND_ASSIGN(const Stager::Rows staged, core_.stager().stage(runs, view.kv_dim()));
  // Runs of one kind are scattered together.
  Packing packing = Packing::none;
  const auto launch = [&]() -> Status {
    if (packing == Packing::none) {
      k::place_runs(table, view, turns, core_.stream());
    } else {
      k::place_packed_runs(packing, table, view, turns, core_.stream());
    }
    table.n_runs = table.n_rows = 0;
    return check_launch("scatter");
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

Status CudaFusionOps::read_kv(const KvCache& cache, uint32_t layer, const RopeTable& rope,
                              const uint32_t* slots, Tensor kv) {
  const auto& c = static_cast<const CudaKvCache&>(cache);
  const auto& table = static_cast<const CudaRopeTable&>(rope);
  const auto rows = static_cast<size_t>(kv.rows);
  const uint32_t limit = std::min(c.capacity(), table.n_positions());
  if (rows == 0) return Status::ok();
  if (slots[rows - 1] >= limit) return outside("read_kv", slots[rows - 1], limit);
  const auto scope = core_.enter();
  BLEND_ASSIGN(const Stager::Shared from, core_.stager().share(slots, rows));
  k::read_rows(c.layer(layer), table.view(), from.as<uint32_t>(), rows,
               static_cast<float*>(kv.data), core_.stream());
  return check_launch("read_kv");
}

Status CudaFusionOps::encode_kv(Tensor kv, DType dtype, std::byte* k_out, std::byte* v_out) {
  const size_t rows = static_cast<size_t>(kv.rows), kv_dim = static_cast<size_t>(kv.cols) / 2;
  const size_t plane = rows * kv_dim * static_cast<size_t>(dtype_size(dtype));
  if (plane == 0) return Status::ok();
  const auto scope = core_.enter();
  BLEND_ASSIGN(const Memory bad, core_.make_counter());
  BLEND_ASSIGN(const Memory encoded, core_.device().allocate(2 * plane));
  std::byte* const at = encoded.as<std::byte>();
  k::encode_kv(static_cast<const float*>(kv.data), rows, kv_dim, dtype, at, at + plane,
               bad.as<unsigned long long>(), core_.stream());
  BLEND_RETURN_IF_ERROR(check_launch("encode_kv"));
  BLEND_RETURN_IF_ERROR(core_.fetch(k_out, at, plane));
  BLEND_RETURN_IF_ERROR(core_.fetch(v_out, at + plane, plane));
  BLEND_ASSIGN(const unsigned long long row, core_.read_counter(bad));
  if (row == CudaCore::kNone) return Status::ok();
  return make_error(
      BLEND_E_NUMERIC, "K or V of row %llu is not finite in %s: the model's activations overflow%s",
      row, dtype_name(dtype), dtype == DType::f16 ? "; store its KV as bf16 or f32" : "");
}

}  // namespace blend::cuda
