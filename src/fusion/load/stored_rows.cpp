#include "fusion/load/stored_rows.h"

#include <algorithm>

namespace blend {
namespace {

// `n` rows of `run` from its row `skip` on, whose position is `first`; row_bytes: of a plane.
StoredRun part_of(const RowRun& run, const DeviceTier::LayerRef& kept, const ChunkShape& shape,
                  size_t row_bytes, uint32_t skip, uint32_t n, uint32_t first) {
  StoredRun part{run.k, run.v, shape.dtype, n, first, run.packed, run.first + skip};
  if (kept != nullptr) part.kept = kept->memory.get();
  if (run.packed.packing == Packing::none) {
    const size_t bytes = skip * row_bytes;
    part.k += bytes;
    part.v += bytes;
  }
  return part;
}

}  // namespace

ChunksToLoad chunks_to_load(const Prompt& prompt, uint32_t first_stored_layer, uint32_t n_layers) {
  ChunksToLoad out;
  out.first_layer = n_layers;
  for (size_t i = 0; i < prompt.segments.size(); ++i) {
    const PromptSegment& s = prompt.segments[i];
    if (!s.reused()) continue;
    out.items.push_back({s.chunk.get(), s.exact ? 0u : first_stored_layer});
    out.segments.push_back(i);
    out.first_layer = std::min(out.first_layer, out.items.back().first_layer);
  }
  return out;
}

std::vector<StoredRun> stored_runs(const Prompt& prompt, std::span<const size_t> segments,
                                   const StagedLayer& staged) {
  std::vector<StoredRun> runs;
  for (size_t i = 0; i < staged.chunks.size(); ++i) {
    const PromptSegment& s = prompt.segments[segments[i]];
    const ChunkShape& shape = s.chunk->meta().shape;
    for (const RowRun& run : staged.chunks[i]) {
      runs.push_back(part_of(run, staged.kept[i], shape, 0, 0, run.n, s.first_row + run.first));
    }
  }
  return runs;
}

uint64_t rows_to_place(std::span<const StoredRun> runs, std::span<const uint8_t> computed) {
  uint64_t n = 0;
  for (const StoredRun& run : runs) {
    const std::span<const uint8_t> rows = computed.subspan(run.first, run.n_rows);
    n += static_cast<uint64_t>(std::count(rows.begin(), rows.end(), 0));
  }
  return n;
}

void leave_out_rows(const Prompt& prompt, std::span<const uint8_t> computed, Corrector& corrector) {
  std::vector<uint32_t> left;
  std::vector<StoredFeatures> features(prompt.n_rows());
  for (const PromptSegment& s : prompt.segments) {
    for (uint32_t i = 0; s.stale() && i < s.n_rows; ++i) {
      const RowImpact& impact = s.chunk->meta().impact[i];
      features[s.first_row + i] = StoredFeatures::of(impact.inside, impact.outside, i);
      if (computed[s.first_row + i] == 0) left.push_back(s.first_row + i);
    }
  }
  corrector.leave_out(std::move(left), std::move(features));
}

std::vector<uint32_t> recomputed_rows(const Prompt& prompt, std::span<const uint8_t> computed) {
  std::vector<uint32_t> rows;
  for (const PromptSegment& s : prompt.segments) {
    for (uint32_t row = s.first_row; s.stale() && row < s.first_row + s.n_rows; ++row) {
      if (computed[row] != 0) rows.push_back(row);
    }
  }
  return rows;
}

std::vector<StoredRun> stored_runs_among(const Prompt& prompt, std::span<const size_t> segments,
                                         const StagedLayer& staged,
                                         std::span<const uint32_t> active) {
  // One run for each stretch of a chunk's rows that are adjacent among the active ones.
  std::vector<StoredRun> runs;
  for (size_t i = 0; i < staged.chunks.size(); ++i) {
    const PromptSegment& s = prompt.segments[segments[i]];
    if (s.exact) continue;
    const ChunkShape& shape = s.chunk->meta().shape;
    const size_t row_bytes = shape.row_bytes(staged.layer);
    for (const RowRun& run : staged.chunks[i]) {
      const uint32_t first = s.first_row + run.first;
      auto at = std::lower_bound(active.begin(), active.end(), first);
      const auto end = std::lower_bound(at, active.end(), first + run.n);
      while (at != end) {
        auto stop = at + 1;
        while (stop != end && *stop == *(stop - 1) + 1) ++stop;
        runs.push_back(part_of(run, staged.kept[i], shape, row_bytes, *at - first,
                               static_cast<uint32_t>(stop - at),
                               static_cast<uint32_t>(at - active.begin())));
        at = stop;
      }
    }
  }
  return runs;
}

}  // namespace blend
