// Pass: the layers of one fuse on the built-in engine, from the embedding to the logits of the last
// row (CacheBlend, sections 4 and 5).
//
// layer_session.h says what is due at every layer and for which rows; the pass computes it, and
// puts the stored rows that layer_feed.h brings into place. The passes of a batch take the layers
// in step: batch.h.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "engine/forward.h"
#include "fusion/correct/chunk_shift.h"
#include "fusion/load/layer_feed.h"
#include "fusion/prompt/prompt.h"
#include "fusion/request/clock.h"
#include "fusion/run/fuse.h"
#include "fusion/run/layer_session.h"

namespace blend {

// Used once, by one thread. Everything that the constructor is given must outlive it.
class Pass {
 public:
  // `session` has begun with `prompt`; the pass takes it through the layers.
  Pass(const std::shared_ptr<const Model>& model, const Prompt& prompt, const FuseOptions& options,
       const ResolvedFuse& fuse, LayerSession& session, const Stopwatch& clock, Fused& out);

  // Before the first layer. `feed`: the stored layers of the prompt.
  Status prepare(LayerFeed::View& feed);
  // Every layer in turn. CORRUPT: see LayerFeed::damaged().
  Status layer(uint32_t layer, const Watch& watch);
  // The logits. The sequence is as before, whatever comes after.
  Status finish();
  // The sequence has the rows and the logits from here on. Last: or it throws and has not.
  void commit();

 private:
  // ---- One layer
  // The layer at which the session stands, up to its probe or its end.
  Status step(const Watch& watch);
  // Fresh K, V of the rows at hand, in kv_ and in the cache.
  Status compute_kv(const Watch& watch);
  // Waits for the reader; the layer is staged_ from here on.
  Status acquire();
  // Puts the stored rows that are not computed at this layer into the cache.
  Status place();
  // What is added to them at this layer; null: nothing.
  Result<const Correction*> correct();
  // The shift of chunks. Called when it is known which rows are computed from here on.
  Status plan_shift();
  bool shifts(uint32_t layer) const;
  // Before fresh rows replace stored ones in the cache.
  Status hold_stored();
  // When the fresh rows and the stored ones are in the cache.
  Status shift();
  Status finish_layer(const Watch& watch);

  // ---- The probe
  // Where the layer is asked: adds what the question attended to.
  Status finish_asked_layer(const Watch& watch);
  // At the last layer that is asked, whose stored rows are in the cache as are those of the layers
  // before: lets the rows through that are chosen, and begins again with them at layer 0.
  Status probe(const Watch& watch);
  // Where the question's rows begin in x_.
  size_t first_asking() const { return session_.rows().size() - session_.asking_rows().size(); }
  void add_attention(std::span<const float> attention);
  // The session's rows from the embedding on, in x_; but of the first n_known, which stand first in
  // x_ already, what they are there.
  Status embed(size_t n_known);

  // ---- A check layer
  Status choose(const Watch& watch);
  // Attention that the question's rows put on every row at this layer, [n_rows].
  Result<std::vector<float>> weigh_by_question(const Watch& watch);
  // Drops the rows of x_ that are no longer the session's; `before`: those that it holds.
  Status narrow(const std::vector<uint32_t>& before);
  // What is left to its stored K, V from `layer` on is tempered there, where that is asked for.
  void temper_from(uint32_t layer);

  // The rows at hand: the session's, but for those whose layer is known.
  std::span<const uint32_t> rows() const {
    return std::span(session_.rows()).subspan(session_.n_known());
  }
  Tensor x() const {
    return x_.slice(static_cast<int64_t>(session_.n_known()), static_cast<int64_t>(rows().size()));
  }

  const std::shared_ptr<const Model>& model_;
  const Prompt& prompt_;
  const FuseOptions& options_;
  const ResolvedFuse& fuse_;
  LayerSession& session_;
  const Stopwatch& clock_;
  Fused& out_;
  const uint32_t n_layers_;

  std::vector<float> asked_;         // [n_rows]; attention, sum over the layers asked so far
  TemperedRows tempered_;            // the resident rows' too
  std::optional<ChunkShift> shift_;  // none: chunks are not shifted, or not yet

  std::unique_ptr<Forward> forward_;
  LayerFeed::View* feed_ = nullptr;
  const StagedLayer* staged_ = nullptr;  // null: none is held
  uint32_t staged_layer_ = 0;            // that it is of
  Tensor x_{};                           // of the session's rows; their slots are their numbers
  Tensor kv_{};                          // of the layer at hand
  std::vector<float> logits_;            // [n_vocab] once finished
};

}  // namespace blend
