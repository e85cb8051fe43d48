// Batch: the prompts of one call, fused in step.
//
// Every prompt has a plan and a pass of its own; the passes take the layers together, so that a
// chunk which several prompts have in common is looked up in one snapshot, prefilled at most once
// if it is missing, and read, verified and decoded once. What a pass computes depends on its own
// prompt only: each result is that of a fuse of its own. A fuse is a batch of one.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "fusion/clock.h"
#include "fusion/fuse.h"
#include "fusion/pass.h"
#include "fusion/plan.h"

namespace blend {

// Used once, by one thread. What it is given must outlive it.
class Batch {
 public:
  Batch(const std::shared_ptr<const Model>& model, const StoreAccess& store,
        std::span<const FuseJob> jobs);
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  // Fuses; one result a job. A prompt that fails leaves the others alone.
  // `resident`: rows that stand before the first job's segments; used up only when that succeeds.
  std::vector<Result<Fused>> run(std::unique_ptr<Sequence>& resident);

 private:
  // One job and what became of it.
  struct Prompt {
    const FuseJob* job = nullptr;
    Status status;  // not OK: it is out
    std::unique_ptr<SelectionPolicy> policy;
    Schedule checks;
    std::unique_ptr<Planner> planner;
    Plan plan;
    uint64_t plan_ns = 0;
    bool ratio_chosen = false;
    Fused out;
    // Of a round.
    std::unique_ptr<LayerFeed::View> feed;
    std::unique_ptr<Pass> pass;

    bool alive() const { return status.is_ok(); }
  };

  // What prompts hold of a round ends with it.
  struct EndOfRound {
    std::vector<Prompt>& prompts;
    ~EndOfRound() {
      for (Prompt& p : prompts) {
        p.pass.reset();
        p.feed.reset();
      }
    }
  };

  Status prepare(Prompt& prompt, std::span<const int32_t> resident);
  // All layers of the prompts that are alive. False: a damaged chunk was replaced, begin again.
  bool round(std::unique_ptr<Sequence>& resident);
  bool run_layers(LayerFeed& feed);
  Status begin_passes(LayerFeed& feed);
  void finish(Prompt& prompt);
  // The prompts that hold `id` as stored take it for missing. False: none does.
  bool replace_damaged(const Sha256& id, const Status& damage);
  uint32_t choose_depth(const LayerFeed& feed) const;
  // `prompt` fails with `status`, if it is an error.
  static void settle(Prompt& prompt, const Status& status);

  const std::shared_ptr<const Model>& model_;
  const StoreAccess& store_;
  const uint32_t n_layers_;
  const Stopwatch clock_;
  std::shared_ptr<SharedLookup> lookup_ = std::make_shared<SharedLookup>();
  std::vector<Prompt> prompts_;
};

}  // namespace blend
