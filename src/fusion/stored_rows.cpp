#include "fusion/stored_rows.h"

#include <algorithm>

namespace blend {

ChunksToLoad chunks_to_load(const Plan& plan, uint32_t first_stored_layer, uint32_t n_layers) {
  ChunksToLoad out;
  out.first_layer = n_layers;
  for (size_t i = 0; i < plan.segments.size(); ++i) {
    const PlannedSegment& s = plan.segments[i];
    if (!s.reused()) continue;
    out.items.push_back({s.chunk.get(), s.exact ? 0u : first_stored_layer});
    out.segments.push_back(i);
    out.first_layer = std::min(out.first_layer, out.items.back().first_layer);
  }
  return out;
}

std::vector<StoredRun> stored_runs(const Plan& plan, std::span<const size_t> segments,
                                   const StagedLayer& staged) {
  std::vector<StoredRun> runs;
  for (size_t i = 0; i < staged.chunks.size(); ++i) {
    if (staged.chunks[i] == nullptr) continue;
    const PlannedSegment& s = plan.segments[segments[i]];
    const ChunkShape& shape = s.chunk->meta().shape;
    runs.push_back({staged.chunks[i], staged.chunks[i] + shape.plane_bytes(), shape.dtype, s.n_rows,
                    s.first_row});
  }
  return runs;
}

std::vector<StoredRun> stored_runs_among(const Plan& plan, std::span<const size_t> segments,
                                         const StagedLayer& staged,
                                         std::span<const uint32_t> active) {
  // Wherever rows of a chunk that are next to each other in the prompt are next to each other among
  // the active ones.
  std::vector<StoredRun> runs;
  for (size_t i = 0; i < staged.chunks.size(); ++i) {
    const PlannedSegment& s = plan.segments[segments[i]];
    if (staged.chunks[i] == nullptr || s.exact) continue;
    const ChunkShape& shape = s.chunk->meta().shape;
    const size_t row_bytes = shape.plane_bytes() / shape.n_tokens;
    auto at = std::lower_bound(active.begin(), active.end(), s.first_row);
    const auto end = std::lower_bound(at, active.end(), s.first_row + s.n_rows);
    while (at != end) {
      auto stop = at + 1;
      while (stop != end && *stop == *(stop - 1) + 1) ++stop;
      const std::byte* const k = staged.chunks[i] + (*at - s.first_row) * row_bytes;
      runs.push_back({k, k + shape.plane_bytes(), shape.dtype, static_cast<uint32_t>(stop - at),
                      static_cast<uint32_t>(at - active.begin())});
      at = stop;
    }
  }
  return runs;
}

}  // namespace blend
