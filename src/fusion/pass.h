// Pass: the layers of one fuse, from the embedding to the logits of the last row (CacheBlend,
// sections 4 and 5).
//
// At every layer: K, V of the rows that are still computed; the stored rows that have come in take
// their places; at a check layer rows are chosen that go on; then attention and feed-forward of
// those. selection.h says which rows there are and who chooses, layer_feed.h who loads. The passes
// of a batch take the layers in step: batch.h.
#pragma once

#include <memory>
#include <vector>

#include "engine/forward.h"
#include "fusion/clock.h"
#include "fusion/corrector.h"
#include "fusion/fuse.h"
#include "fusion/layer_feed.h"
#include "fusion/prompt.h"
#include "fusion/selection.h"
#include "fusion/work.h"

namespace blend {

// Used once, by one thread. Everything that the constructor is given must outlive it.
class Pass {
 public:
  // `selection` has begun with `prompt`; the pass takes it through the layers.
  Pass(const std::shared_ptr<const Model>& model, const Prompt& prompt, const FuseOptions& options,
       const ResolvedFuse& fuse, Selection& selection, const Stopwatch& clock, Fused& out);

  // Before the first layer. `feed`: the stored layers of the prompt.
  Status prepare(LayerFeed::View& feed);
  // Every layer in turn. CORRUPT: see LayerFeed::damaged().
  Status layer(uint32_t layer, const Watch& watch);
  // The logits; fills the account, but for what is the same for any engine (account.h). The
  // sequence is as before, whatever comes after.
  Status finish();
  // The sequence has the rows and the logits from here on. Last: or it throws and has not.
  void commit();

 private:
  // ---- One layer
  // Fresh K, V of x, which are these rows, in `kv` and in the cache; all_go_on: finish_layer()
  // takes all of them.
  Status compute_kv(uint32_t layer, Tensor x, std::span<const uint32_t> rows, Tensor kv,
                    bool all_go_on, const Watch& watch);
  // Waits for the reader; fills the layer's account.
  Status acquire(uint32_t layer, const StagedLayer*& staged, blend_layer_info& account);
  // Puts the staged rows that are not computed at this layer into the cache.
  // kv: fresh K, V of those that are.
  Status place(uint32_t layer, const StagedLayer& staged, Tensor kv, blend_layer_info& account);
  // Tells the corrector which rows are left out before layer 0, where they are corrected.
  void leave_out();

  // ---- The probe
  // Up to the last of Selection::asked() the layers are computed for the rows that are computed
  // anyway, over the stored ones: finishes such a layer, and where it is asked adds what the
  // question attends to.
  Status finish_asking(uint32_t layer, const Watch& watch);
  // At the last of them, whose stored rows are in the cache as are those of the layers before: lets
  // the rows through that are chosen, and computes the layers before this one for them and for
  // those that see fresh rows now.
  Status probe(uint32_t last, const Watch& watch);
  // Where the question's rows begin in active() and x_: they are always computed and stand last.
  size_t first_asking() const {
    return selection_.active().size() - prompt_.segments.back().n_rows;
  }
  void add_attention(std::span<const float> attention);
  // A layer before it for the rows that were let through; the first n_known of x_ are through.
  Status layer_again(uint32_t layer, size_t n_known, const Watch& watch);
  // The rows active() from the embedding on, in x_; but of the first n_known, which stand first in
  // x_ already, what they are there.
  Status embed(size_t n_known);

  // ---- A check layer
  // kv: fresh K, V of the active rows; staged: the layer's stored ones, null: none. Fills the
  // account.
  Status check(uint32_t layer, Tensor kv, const StagedLayer* staged, const Watch& watch);
  Status choose(uint32_t layer, Tensor kv, const StagedLayer* staged, const Watch& watch);
  // Attention that the question's rows put on every row at this layer, [n_rows].
  Result<std::vector<float>> weigh_by_question(uint32_t layer, const Watch& watch);
  // Drops the rows of x_ that are no longer active; `before`: those that it holds.
  Status narrow(const std::vector<uint32_t>& before);
  // The rows of x_ are those that are computed from `layer` on, until the next choice. What
  // is left to its stored K, V there is tempered from there on, where that is asked for.
  void mark_computed(uint32_t layer);

  const std::shared_ptr<const Model>& model_;
  const Prompt& prompt_;
  const FuseOptions& options_;
  const ResolvedFuse& fuse_;
  Selection& selection_;
  const Stopwatch& clock_;
  Fused& out_;
  const uint32_t n_layers_;

  std::vector<float> asked_;       // [n_rows]; attention, sum over the layers asked so far
  std::vector<uint8_t> computed_;  // [capacity] 1: the row's K, V are fresh at this layer
  TemperedRows tempered_;          // the resident rows' too

  std::unique_ptr<Forward> forward_;
  LayerFeed::View* feed_ = nullptr;
  Tensor x_{};                            // of the active rows; their slots are their numbers
  std::vector<float> logits_;             // [n_vocab] once finished
  std::unique_ptr<Corrector> corrector_;  // null: stored rows stay as they are
  Work work_;
};

}  // namespace blend
