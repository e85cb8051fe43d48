// Batch: the prompts of one call, fused in step.
//
// Every prompt has a pass of its own; the passes take the layers together, so that a chunk which
// several prompts have in common is looked up in one snapshot, prefilled at most once if it is
// missing, and read, verified and decoded once. What a pass computes depends on its own prompt
// only: each result is that of a fuse of its own. A fuse is a batch of one.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "fusion/clock.h"
#include "fusion/fuse.h"
#include "fusion/pass.h"
#include "fusion/prompt.h"
#include "fusion/selection.h"

namespace blend {

// Used once, by one thread. What it is given must outlive it.
class Batch {
 public:
  Batch(const std::shared_ptr<const Model>& model, const StoreAccess& store,
        std::span<const FuseRequest> requests);
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  // Fuses; one result a request. A prompt that fails leaves the others alone.
  // `resident`: rows that stand before the first request's segments; used up only when that
  // succeeds.
  std::vector<Result<Fused>> run(std::unique_ptr<Sequence>& resident);

 private:
  // One request and what became of it.
  struct Entry {
    const FuseRequest* request = nullptr;
    Status status;  // not OK: it is out
    std::unique_ptr<Selection> selection;
    std::unique_ptr<PromptBuilder> builder;
    Prompt prompt;
    uint64_t plan_ns = 0;
    Fused out;
    std::unique_ptr<FuseRequest> plain;    // what it became when a chunk forbade the cascade
    std::unique_ptr<FuseRequest> settled;  // what it became when its ratio was known
    std::unique_ptr<FuseRequest> full;     // what it became when its drift correction was in doubt
    // Of a round.
    std::unique_ptr<LayerFeed::View> feed;
    std::unique_ptr<Pass> pass;

    bool alive() const { return status.is_ok(); }
  };

  // What entries hold of a round ends with it.
  struct EndOfRound {
    std::vector<Entry>& entries;
    ~EndOfRound() {
      for (Entry& e : entries) {
        e.pass.reset();
        e.feed.reset();
      }
    }
  };

  Status prepare(Entry& entry, std::span<const int32_t> resident);
  // Policy::automatic took the cascade, and a chunk has not the statistics that it reads: hkvd.
  Status fall_back(Entry& entry);
  // Takes the ratio that keeps the agreement which the host states, where it does.
  Status keep_agreement(Entry& entry);
  // All layers of the entries that are alive. False: a damaged chunk was replaced, begin again.
  bool round(std::unique_ptr<Sequence>& resident);
  bool run_layers(LayerFeed& feed);
  Status begin_passes(LayerFeed& feed);
  void finish(Entry& entry);
  // Rows that went through the whole layer, those that asked and were computed again included.
  static uint64_t rows_through(const Entry& entry, uint32_t layer);
  // How it did beside what the machine's times would have had it take.
  void learn_pace(const Entry& entry, const PrefillTimes& times) const;
  // Prompts whose drift correction was found wanting: in full or not at all, where that is asked
  // for. True: one begins anew.
  bool act_on_doubts(std::span<const int32_t> resident);
  // The entries that hold `id` as stored take it for missing. False: none does.
  bool replace_damaged(const Sha256& id, const Status& damage);
  uint32_t choose_depth(const LayerFeed& feed) const;
  // `entry` fails with `status`, if it is an error.
  static void settle(Entry& entry, const Status& status);

  const std::shared_ptr<const Model>& model_;
  const StoreAccess& store_;
  const uint32_t n_layers_;
  const Stopwatch clock_;
  std::shared_ptr<SharedLookup> lookup_ = std::make_shared<SharedLookup>();
  std::vector<Entry> entries_;
};

}  // namespace blend
