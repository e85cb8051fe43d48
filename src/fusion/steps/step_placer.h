// StepPlacer: the thread that scatters stored layers into the cache of a host that runs the model.
//
// The reader thread of a LayerFeed stages layers; this one takes them in order and, as soon as the
// host has said where a layer goes and which rows it computes itself, decodes, rotates and writes
// the others. A layer at which rows are chosen is held until they are, because the choice measures
// against its staged rows; so is the one at which the question is asked, which is then placed a
// second time, when it is known which rows the host computes.
#pragma once

#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "backend/backend.h"
#include "base/threads/cancel.h"
#include "base/threads/guarded.h"
#include "fusion/correct/corrector.h"
#include "fusion/load/layer_feed.h"
#include "fusion/prompt/prompt.h"
#include "fusion/run/placement.h"

namespace blend {

// One thread calls; the placer's own runs from start() to destruction. `prompt`, `clock` and what
// start() is given must outlive it. `corrector` (null: none) is the placer's from decide() until
// the layer `last` of it is placed.
class StepPlacer {
 public:
  static Result<std::unique_ptr<StepPlacer>> start(Backend& backend,
                                                   std::shared_ptr<const Ropes> ropes,
                                                   const Prompt& prompt,
                                                   uint32_t first_stored_layer, uint32_t n_layers,
                                                   uint32_t ring_depth, Corrector* corrector,
                                                   const Stopwatch& clock);
  ~StepPlacer();
  StepPlacer(const StepPlacer&) = delete;
  StepPlacer& operator=(const StepPlacer&) = delete;

  // Each layer once.
  void set_target(uint32_t layer, const HostKv& target);
  // computed[row] != 0: the host computes the row, at every layer up to `last` inclusive. Called
  // before anything is placed, then whenever the layer `last` of the call before is placed.
  void decide(std::vector<uint8_t> computed, uint32_t last);
  // As decide(), while a layer is held: that one is placed once more before any other. `last` may
  // be this layer itself, which is then held again.
  void decide_again(std::vector<uint8_t> computed, uint32_t last);
  // Blocks until the stored rows of `layer` are in place. The rows that the host computes are in
  // its target by now: where the drift correction is guarded, they are read and the layer is placed
  // only then. CANCELLED leaves everything as it was; after another error nothing more is placed.
  Status wait(uint32_t layer, const Watch& watch);
  // The stored rows of the layer that is held; valid from wait() to decide(). Null: none.
  const StagedLayer* held() const { return held_; }
  // What became of the layer.
  Placement placement(uint32_t layer) const;
  // The chunk whose read failed, after wait() failed with CORRUPT.
  const Sha256& damaged() const { return damaged_; }
  // Places of the segments of held() in the prompt.
  std::span<const size_t> segments() const { return view_->segments(); }
  bool loads() const { return !view_->segments().empty(); }

 private:
  StepPlacer(Backend& backend, std::shared_ptr<const Ropes> ropes, const Prompt& prompt,
             uint32_t first_stored_layer, uint32_t n_layers, Corrector* corrector,
             const Stopwatch& clock);
  void main(uint32_t first);
  // False when the thread is to end.
  bool handle(uint32_t layer);
  Status place(uint32_t layer, const StagedLayer& staged, Placement& placement);
  // It is set once, so that it may be used without the lock.
  HostKv target_of(uint32_t layer) const {
    const MutexLock lock(mutex_);
    return *targets_[layer];
  }
  // The layer's corrector has rows of the host to judge by.
  bool is_judged(uint32_t layer) const;
  // Places the layer and waits while it is held. False when the thread is to end; `again`: it is to
  // be placed again.
  bool place_and_hold(uint32_t layer, const StagedLayer& staged, bool& again);
  // K, V of `rows` from the layer's target, K turned back; in `kv` of `buffer`.
  Status read_target(uint32_t layer, std::span<const uint32_t> rows,
                     std::unique_ptr<DeviceBuffer>& buffer, Tensor& kv) const;
  void fail(const Status& status);

  Backend& backend_;
  const std::shared_ptr<const Ropes> ropes_;
  const Prompt& prompt_;
  const uint32_t n_layers_;
  Corrector* const corrector_;
  const Stopwatch& clock_;
  LayerFeed feed_;
  std::unique_ptr<LayerFeed::View> view_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<std::optional<HostKv>> targets_ BLEND_GUARDED_BY(mutex_);  // [n_layers]
  std::vector<Placement> placements_ BLEND_GUARDED_BY(mutex_);           // [n_layers]
  uint32_t placed_ BLEND_GUARDED_BY(mutex_) = 0;         // layers below are in place
  uint32_t decided_ BLEND_GUARDED_BY(mutex_) = 0;        // layers below have known rows
  uint32_t computed_upto_ BLEND_GUARDED_BY(mutex_) = 0;  // layers below have the host's own rows
  bool again_ BLEND_GUARDED_BY(mutex_) = false;          // the held layer is to be placed again
  bool stop_ BLEND_GUARDED_BY(mutex_) = false;
  Status error_ BLEND_GUARDED_BY(mutex_);
  Sha256 damaged_{};  // written before error_
  // Written by decide() and by the thread in turns: see there.
  std::vector<uint8_t> computed_;  // [n_rows]
  const StagedLayer* held_ = nullptr;
  std::thread thread_;
};

}  // namespace blend
