// PassCost: an estimate of how long the pass of a prompt would take. There is one such model, for
// the controller of a fuse, for blend_machine_advise, and for the choice between computing a
// missing chunk in the pass and prefilling it first.
//
// A layer's work is that of the rows whose K and V are computed there, of the rows that go on
// through attention and feed-forward, and of the stored rows that are scattered; the reader loads
// layers meanwhile. The estimate goes layer by layer, because the order matters: work before the
// first stored layer overlaps with loading, work after the last one does not. Without layers before
// the check layer, new text and prefix hits it is the formula of CacheBlend, section 5.1:
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

// ceil(ratio * n_reused): the number of rows to recompute. A product that is an integer except for
// rounding errors is not rounded up.
size_t recompute_budget(double ratio, size_t n_reused);

// Rows of a prompt by kind.
struct RowCounts {
  uint64_t n_always = 0;      // computed in every layer: question, new text, misses
  uint64_t n_reused = 0;      // the ratio is a share of them
  uint64_t n_candidates = 0;  // stored rows that may be recomputed
  uint64_t n_exact = 0;       // stored rows that are never recomputed: prefix hits
};

// Rows of one layer.
struct LayerRows {
  uint64_t n_kv = 0;      // K and V are computed
  uint64_t n_ahead = 0;   // of these: computed before the pass waits for the stored layer
  uint64_t n_rest = 0;    // attention and feed-forward are computed
  uint64_t n_chosen = 0;  // of the candidates, computed after this layer's choice
  uint64_t n_layers = 1;  // whose rows n_rest are, where some are computed again
};

// Whether the question's attention can change the choice: not if the budget is none of the
// candidates, or all of them.
bool asking_matters(std::span<const CheckLayer> schedule, uint64_t n_reused, uint64_t n_candidates);

// The rows of each layer, as Selection and Pass go through them. asks_upto: the first choice is
// made after this layer by the question's attention; then the layers before it are computed.
// [n_layers]
std::vector<LayerRows> rows_by_layer(std::span<const CheckLayer> schedule,
                                     std::optional<uint32_t> asks_upto, const RowCounts& rows,
                                     uint32_t n_layers);

// Seconds of one row in one layer. With mixtures of experts a layer's price does not grow with its
// rows alone: few rows already go to most experts, and each of these is read whole.
struct RowCost {
  double kv_s = 0;
  double rest_s = 0;
  double place_s = 0;
  double experts_s = 0;  // of reading all experts of a layer
  double passed_by = 0;  // the share of the experts that a row does not go to

  // Attention and feed-forward of n rows, of n_layers layers together.
  double rest(uint64_t n, uint64_t n_layers = 1) const;
  // As if all computing took `factor` times as long.
  RowCost paced(double factor) const;

  // For a prompt of n_rows whose full prefill takes prefill_s. It assumes that a row attends to
  // half of the prompt on average, whichever rows are computed, and that experts are equally
  // popular.
  static RowCost of(const ModelConfig& config, uint64_t n_rows, double prefill_s);
};

// All layers together, without scattering stored rows.
double computed_seconds(std::span<const LayerRows> layers, const RowCost& row);

// Seconds that the reader takes for a layer.
struct LoadCost {
  double exact_s = 0;    // in every layer
  double stale_s = 0;    // from first_stored_layer on
  double latency_s = 0;  // once, before the first
};

struct PassCost {
  double seconds = 0;  // of the pass, in which the next two overlap layer by layer
  double load_s = 0;
  double compute_s = 0;
};

// slower: factor on all computing.
PassCost pass_cost(std::span<const LayerRows> layers, const RowCounts& rows, const RowCost& row,
                   const LoadCost& load, uint32_t first_stored_layer, double slower = 1);

// Whether it is sooner to prefill a missing chunk by itself, and then reuse it in the same prompt,
// than to compute it in the prompt's pass. Then its rows attend only to each other. That saves
// more than the partial recompute costs only if attention to a long prompt dominates.
// n_tokens: of the chunk, in a prompt of n_rows. `schedule` chooses the rows to recompute (empty:
// none).
bool prefill_first_is_sooner(uint64_t n_tokens, uint64_t n_rows,
                             std::span<const CheckLayer> schedule, const ModelConfig& config,
                             const PrefillTimes& prefill);

}  // namespace blend
