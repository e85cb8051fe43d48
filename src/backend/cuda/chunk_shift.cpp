// The shift of chunks in a KV cache.
#include "cuda/chunk_shift.h"

#include <algorithm>
#include <vector>

#include "backend/cuda/fusion_ops.h"
#include "backend/cuda/tensors.h"
#include "backend/outside.h"

namespace blend::cuda {
namespace {

namespace k = kernels::cuda;

// The rows of the chunks that did not move.
std::vector<k::ShiftedRow> rows_of(const Moves& moves, std::span<const ShiftedChunk> chunks) {
  std::vector<k::ShiftedRow> rows;
  for (size_t i = 0; i < chunks.size(); ++i) {
    const ShiftedChunk& chunk = chunks[i];
    const uint32_t* at = moves.slots + chunk.begin;
    const uint32_t* const end = at + chunk.n_moved;
    if (chunk.n_moved == 0) continue;
    for (uint32_t slot = chunk.first; slot < chunk.first + chunk.n_rows; ++slot) {
      if (at != end && *at == slot) {
        ++at;
      } else {
        rows.push_back({slot, static_cast<uint32_t>(i)});
      }
    }
  }
  return rows;
}

}  // namespace

Status CudaFusionOps::shift_rows(KvCache& cache, uint32_t layer, const RopeTable& rope,
                                 const Moves& moves, std::span<const ShiftedChunk> chunks) {
  static_assert(ShiftRule::kNear == k::ChunkShifts::kNear);
  const auto& c = static_cast<const CudaKvCache&>(cache);
  const auto& table = static_cast<const CudaRopeTable&>(rope);
  const uint32_t limit = std::min(c.capacity(), table.n_positions());
  std::vector<k::MovedSpan> spans;
  for (const ShiftedChunk& chunk : chunks) {
    if (chunk.first > limit || chunk.n_rows > limit - chunk.first) {
      return outside("shift_rows", uint64_t{chunk.first} + chunk.n_rows, limit);
    }
    spans.push_back({chunk.begin, chunk.n_moved});
  }
  const std::vector<k::ShiftedRow> rows = rows_of(moves, chunks);
  if (rows.empty()) return Status::ok();
  const auto scope = core_.enter();
  const k::KvView view = c.layer(layer);
  BLEND_ASSIGN(const Stager::Shared moved,
               core_.stager().share(moves.slots, static_cast<size_t>(moves.kv.rows)));
  BLEND_ASSIGN(const Stager::Shared of_chunks, core_.stager().share(spans.data(), spans.size()));
  BLEND_ASSIGN(const Stager::Shared shifted, core_.stager().share(rows.data(), rows.size()));
  BLEND_ASSIGN(const Memory sums,
               core_.device().allocate(spans.size() * 2 * view.kv_dim() * sizeof(float)));
  k::ChunkShifts shifts;
  shifts.moves = static_cast<const float*>(moves.kv.data);
  shifts.moved = moved.as<uint32_t>();
  shifts.chunks = of_chunks.as<k::MovedSpan>();
  shifts.n_chunks = spans.size();
  shifts.rows = shifted.as<k::ShiftedRow>();
  shifts.n_rows = rows.size();
  const ShiftRule rule;
  std::copy(rule.table().begin(), rule.table().end(), shifts.near);
  shifts.prior = ShiftRule::kPrior;
  k::shift_chunks(shifts, view, table.view(), sums.as<float>(), core_.stream());
  return check_launch("shift_rows");
}

}  // namespace blend::cuda
