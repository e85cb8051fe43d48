// The stored rows of a prompt: which chunks are loaded, and the positions of their staged rows.
#pragma once

#include <span>
#include <vector>

#include "backend/backend.h"
#include "fusion/correct/corrector.h"
#include "fusion/load/layer_loader.h"
#include "fusion/prompt/prompt.h"

namespace blend {

struct ChunksToLoad {
  std::vector<LayerLoader::Item> items;
  std::vector<size_t> segments;  // index of each item's segment in the prompt
  uint32_t first_layer = 0;      // the first layer at which one of them is needed; n_layers: none
};

// The prompt's reused segments. Those that are not exact are loaded from `first_stored_layer` on.
ChunksToLoad chunks_to_load(const Prompt& prompt, uint32_t first_stored_layer, uint32_t n_layers);

// Rows of a staged layer by their position in the prompt. segments: as in ChunksToLoad.
std::vector<StoredRun> stored_runs(const Prompt& prompt, std::span<const size_t> segments,
                                   const StagedLayer& staged);
// How many of those rows are scattered: the ones with computed[row] == 0.
uint64_t rows_to_place(std::span<const StoredRun> runs, std::span<const uint8_t> computed);

// The staged rows that are stored, not exact and among `active` (rows of the prompt,
// ascending), by their index in `active`. Deviations are measured against them.
std::vector<StoredRun> stored_runs_among(const Prompt& prompt, std::span<const size_t> segments,
                                         const StagedLayer& staged,
                                         std::span<const uint32_t> active);

// Tells the corrector which stored rows are not computed from layer 0 on, and the features of all.
// computed: [n_rows]. Every chunk that is not exact must have statistics, from which these are
// made.
void leave_out_rows(const Prompt& prompt, std::span<const uint8_t> computed, Corrector& corrector);

// The rows that are stored, not exact and computed; ascending. computed: [n_rows].
std::vector<uint32_t> recomputed_rows(const Prompt& prompt, std::span<const uint8_t> computed);

}  // namespace blend
