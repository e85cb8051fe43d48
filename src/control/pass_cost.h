// PassCost: how long the pass of a prompt would take, before any of it is done. The one model of
// that: the controller of a fuse, blend_machine_advise and the choice of what becomes of a missing
// chunk all ask it.
//
// A layer's work is that of the rows whose K and V are computed there, of those that go on through
// attention and feed-forward, and of the stored rows that are placed; the reader brings the layers
// meanwhile. Layer by layer, because it matters where work stands: what is computed before the
// first stored layer hides loading, what comes after the last one hides none. Without check layers
// before the first, new text and prefix hits it is the formula of CacheBlend, section 5.1:
//
//   T_recompute(r, model, L) = r * Prefill(model, L)
//   T_load(model, L, storage) = bytes(model, L) / throughput(storage)
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "control/check_layer.h"
#include "control/cost_model.h"
#include "model/config.h"

namespace blend {

// ceil(ratio * n_reused): the number of rows the budget pays for. A product that is whole but for
// rounding is not rounded up.
size_t recompute_budget(double ratio, size_t n_reused);

// Rows of a prompt by kind.
struct RowCounts {
  uint64_t n_always = 0;      // computed in every layer: question, new text, misses
  uint64_t n_reused = 0;      // the ratio is a share of them
  uint64_t n_candidates = 0;  // stored rows that may be recomputed
  uint64_t n_exact = 0;       // stored rows that are not
};

// Rows of one layer.
struct LayerRows {
  uint64_t n_kv = 0;      // K and V are computed
  uint64_t n_ahead = 0;   // of these: before the stored layer is waited for
  uint64_t n_rest = 0;    // attention and feed-forward are computed
  uint64_t n_chosen = 0;  // of the candidates, computed after this layer's choice
};

// Whether what the question attends to can change the choice: not where the budget is none of the
// candidates, or all of them.
bool asking_matters(std::span<const CheckLayer> schedule, uint64_t n_reused, uint64_t n_candidates);

// As Selection and Pass go through the layers. asks_upto: the first choice is made after this layer
// by what the question attends to, and the layers before it are computed then. [n_layers]
std::vector<LayerRows> rows_by_layer(std::span<const CheckLayer> schedule,
                                     std::optional<uint32_t> asks_upto, const RowCounts& rows,
                                     uint32_t n_layers);

// Seconds of one row in one layer.
struct RowCost {
  double kv_s = 0;
  double rest_s = 0;
  double place_s = 0;

  // For a prompt of n_rows whose full prefill takes prefill_s: its rows attend to half of it on
  // average, be they all or some of them.
  static RowCost of(const ModelConfig& config, uint64_t n_rows, double prefill_s);
};

// All layers together, without placing.
double computed_seconds(std::span<const LayerRows> layers, const RowCost& row);

// Seconds that the reader takes for a layer.
struct LoadCost {
  double exact_s = 0;    // in every layer
  double stale_s = 0;    // from first_stored_layer on
  double latency_s = 0;  // once, before the first
};

struct PassCost {
  double seconds = 0;  // layer by layer the longer of
  double load_s = 0;
  double compute_s = 0;
};

// slower: factor on all that is computed.
PassCost pass_cost(std::span<const LayerRows> layers, const RowCounts& rows, const RowCost& row,
                   const LoadCost& load, uint32_t first_stored_layer, double slower = 1);

// Whether a missing chunk is better prefilled by itself, stored and reused in the same prompt than
// computed in the prompt's pass. By itself its rows attend to each other alone, which is worth the
// second time in part only where attention to a long prompt is what a row costs.
// n_tokens: of the chunk, rows of a prompt of n_rows, which are chosen by `schedule`
// (empty: none is recomputed).
bool prefill_first_is_sooner(uint64_t n_tokens, uint64_t n_rows,
                             std::span<const CheckLayer> schedule, const ModelConfig& config,
                             const PrefillTimes& prefill);

}  // namespace blend
