// Pass: the layers of one fuse, from the embedding to the logits of the last row (CacheBlend,
// sections 4 and 5).
//
// At every layer: K, V of the rows that are still computed; the stored rows that have come in take
// their places; at a check layer the policy says which rows go on; then attention and feed-forward
// of those. rows.h says which rows there are, policy/ who chooses, layer_feed.h who loads. The
// passes of a batch take the layers in step: batch.h.
#pragma once

#include <memory>
#include <vector>

#include "engine/forward.h"
#include "fusion/clock.h"
#include "fusion/corrector.h"
#include "fusion/fuse.h"
#include "fusion/layer_feed.h"
#include "fusion/plan.h"
#include "fusion/policy/policy.h"
#include "fusion/rows.h"

namespace blend {

// Used once, by one thread. Everything that the constructor is given must outlive it.
class Pass {
 public:
  // `policy` null: nothing is chosen (full, reuse). `checks`: where it chooses; a check at layer 0
  // is before that layer, and only for a policy that needs no measurement.
  Pass(const std::shared_ptr<const Model>& model, const Plan& plan, const FuseOptions& options,
       const SelectionPolicy* policy, const Schedule& checks, const Stopwatch& clock, Fused& out);

  // The first layer whose stored rows are asked for, where they are not exact.
  uint32_t first_stored_layer() const;
  // Rows that are computed at each layer, as far as it is known before a row is chosen; [n_layers].
  std::vector<uint64_t> expected_rows() const;

  // Before the first layer. `feed`: the stored layers of the plan.
  Status prepare(LayerFeed::View& feed);
  // Every layer in turn. CORRUPT: see LayerFeed::damaged().
  Status layer(uint32_t layer, const Watch& watch);
  // The logits; fills the account, but for what is the same for any engine (account.h).
  Status finish();

 private:
  // ---- Before the layers
  // Whether the options' drift maps belong to this pass: they begin where it first checks.
  bool corrects() const;

  // ---- One layer
  // Waits for the reader; fills the layer's account.
  Status acquire(uint32_t layer, const StagedLayer*& staged, blend_layer_info& account);
  // Puts the staged rows that are not computed at this layer into the cache.
  Status place(uint32_t layer, const StagedLayer& staged, blend_layer_info& account);
  std::vector<StoredRun> staged_runs(const StagedLayer& staged) const;

  // ---- A check layer
  // kv: fresh K, V of the active rows; null and no `staged` before layer 0.
  Status check(const Check& check, Tensor kv, const StagedLayer* staged, const Watch& watch);
  // Stored runs by row of the fresh tensor: wherever rows of a chunk that are still computed stand
  // next to each other in the prompt. Exact rows have nothing to measure and are not among them.
  std::vector<StoredRun> active_runs(const StagedLayer& staged) const;
  // Deviations of the active rows that are stored, by row of the prompt.
  Status measure(Tensor kv, const StagedLayer& staged, std::vector<float>& deviation);
  // Attention that the question's rows put on every row at this layer, [n_rows].
  Status weigh_by_question(uint32_t layer, std::vector<float>& attention, const Watch& watch);
  // Drops the rows of x that are not in `keep`, a subset of active_.
  Status keep_rows(std::vector<uint32_t> keep);
  // The rows of x_ are those that are computed at `layer` and behind, until the next choice. What
  // is left to its stored K, V there is tempered from there on, where that is asked for.
  void mark_computed(uint32_t layer);

  const std::shared_ptr<const Model>& model_;
  const Plan& plan_;
  const FuseOptions& options_;
  const Stopwatch& clock_;
  Fused& out_;
  const uint32_t n_layers_;

  Rows rows_;
  const SelectionPolicy* policy_;  // null: no row is left to choose
  const Schedule& checks_;
  size_t next_check_ = 0;            // index into checks_
  std::vector<uint32_t> undecided_;  // candidates that are still computed, ascending
  std::vector<uint32_t> active_;     // rows of x_, ascending; their slots are these numbers
  std::vector<uint8_t> computed_;    // [capacity] 1: the row's K, V are fresh at this layer
  TemperedRows tempered_;            // the resident rows' too

  std::unique_ptr<Forward> forward_;
  LayerFeed::View* feed_ = nullptr;
  Tensor x_{};
  std::unique_ptr<Corrector> corrector_;  // null: stored rows stay as they are
};

}  // namespace blend
