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
#include "fusion/layer_session.h"
#include "fusion/pass.h"
#include "fusion/prompt.h"

namespace blend {

// Used once, by one thread. What it is given must outlive it.
class Batch {
 public:
  Batch(const std::shared_ptr<const Model>& model, const StoreAccess& store,
        std::span<const FuseJob> jobs);
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  // Fuses; one result a job. A prompt that fails leaves the others alone.
  // `resident`: rows that stand before the first job's segments; used up only when that
  // succeeds.
  std::vector<Result<Fused>> run(std::unique_ptr<Sequence>& resident);

 private:
  // One job and what became of it.
  struct Entry {
    const FuseJob* job = nullptr;
    ResolvedFuse fuse;  // the job's, until its prompt says otherwise
    Status status;      // not OK: it is out
    std::unique_ptr<PromptBuilder> builder;
    Prompt prompt;
    uint64_t plan_ns = 0;
    Fused out;
    // Of a round.
    std::unique_ptr<LayerSession> session;
    std::unique_ptr<LayerFeed::View> feed;
    std::unique_ptr<Pass> pass;

    bool alive() const { return status.is_ok(); }
    const FuseOptions& options() const { return job->request.options; }
    const Watch& watch() const { return job->request.watch; }
    void end_round() {
      pass.reset();
      feed.reset();
      session.reset();
    }
  };

  // What entries hold of a round ends with it.
  struct EndOfRound {
    std::vector<Entry>& entries;
    ~EndOfRound() {
      for (Entry& e : entries) {
        e.end_round();
      }
    }
  };

  // Looks the prompt up, and lets it decide what it has a say in: entry.fuse.
  Status prepare(Entry& entry, std::span<const int32_t> resident);
  // All layers of the entries that are alive. False: a damaged chunk was replaced, begin again.
  bool round(std::unique_ptr<Sequence>& resident);
  bool run_layers(LayerFeed& feed);
  Status begin_passes(LayerFeed& feed);
  void finish(Entry& entry);
  // Rows that went through the whole layer, those that asked and were computed again included.
  static uint64_t rows_through(const Entry& entry, uint32_t layer);
  // Feeds the time that it took, against that expected by the machine's times, into its pace.
  void learn_pace(const Entry& entry) const;
  // Prompts whose drift correction was found wanting: in full or not at all, where that is asked
  // for. True: one begins again.
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
