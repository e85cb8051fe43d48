#include "fusion/correct/chunk_shift.h"

#include "fusion/correct/places.h"

namespace blend {

Result<ChunkShift> ChunkShift::create(Backend& backend, const ModelConfig& config,
                                      std::span<const ShiftedChunk> chunks,
                                      std::span<const uint8_t> computed) {
  ChunkShift out(backend, config);
  for (ShiftedChunk chunk : chunks) {
    chunk.begin = static_cast<uint32_t>(out.moved_.size());
    for (uint32_t row = chunk.first; row < chunk.first + chunk.n_rows; ++row) {
      if (computed[row] != 0) out.moved_.push_back(row);
    }
    chunk.n_moved = static_cast<uint32_t>(out.moved_.size()) - chunk.begin;
    if (chunk.n_moved == 0) continue;
    out.n_shifted_ += chunk.n_rows - chunk.n_moved;
    out.chunks_.push_back(chunk);
  }
  if (out.n_shifted_ == 0) return out;
  const size_t bytes = out.moved_.size() * static_cast<size_t>(config.widest_row()) *
                       static_cast<size_t>(backend.traits().activation_bytes);
  BLEND_ASSIGN(out.stored_, backend.allocate(bytes));
  BLEND_ASSIGN(out.moves_, backend.allocate(bytes));
  return out;
}

Status ChunkShift::hold_stored(uint32_t layer, const KvCache& cache, const RopeTable& rope) {
  return backend_->fusion().read_kv(cache, layer, rope, moved_.data(), view(*stored_, layer));
}

Status ChunkShift::take(Tensor kv, std::span<const uint32_t> rows, Tensor to) {
  BLEND_ASSIGN(const std::vector<uint32_t> places, places_among(moved_, rows));
  return backend_->gather(kv, places.data(), to);
}

Status ChunkShift::measure_held(uint32_t layer, Tensor kv, std::span<const uint32_t> rows) {
  const Tensor moves = view(*moves_, layer), stored = view(*stored_, layer);
  BLEND_RETURN_IF_ERROR(take(kv, rows, moves));
  BLEND_RETURN_IF_ERROR(backend_->scale(stored, -1.0f));
  return backend_->add(moves, stored);
}

Status ChunkShift::measure(uint32_t layer, Tensor kv, std::span<const uint32_t> rows,
                           std::span<const StoredRun> stored) {
  const Tensor fresh = view(*stored_, layer);
  BLEND_RETURN_IF_ERROR(take(kv, rows, fresh));
  return backend_->fusion().drift_inputs(fresh, stored, {}, view(*moves_, layer));
}

Status ChunkShift::shift(uint32_t layer, KvCache& cache, const RopeTable& rope) const {
  return backend_->fusion().shift_rows(cache, layer, rope, {view(*moves_, layer), moved_.data()},
                                       chunks_);
}

}  // namespace blend
