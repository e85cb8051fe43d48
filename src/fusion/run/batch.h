// Batch: fuses the prompts of one call layer by layer, together.
//
// Every prompt has a pass of its own. All passes are at the same layer at a time, so a chunk that
// several prompts have is looked up in one snapshot, prefilled at most once if it is missing, and
// read, verified and decoded once. Each pass computes from its own prompt only: its result is that
// of a fuse of its own. A fuse is a batch of one.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "fusion/prompt/prompt.h"
#include "fusion/request/clock.h"
#include "fusion/run/fuse.h"
#include "fusion/run/layer_session.h"
#include "fusion/run/pass.h"

namespace blend {

// Used once, by one thread. The arguments must outlive it.
class Batch {
 public:
  Batch(const std::shared_ptr<const Model>& model, const StoreAccess& store,
        std::span<const FuseJob> jobs);
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  // Fuses; one result a job. A prompt that fails does not affect the others.
  // `resident`: the past, rows before the first job's segments. It is taken only if that job
  // succeeds.
  std::vector<Result<Fused>> run(std::unique_ptr<Sequence>& resident);

 private:
  // One job and its result.
  struct Entry {
    const FuseJob* job = nullptr;
    ResolvedFuse fuse;  // the job's, until the prompt's chunks change it
    Status status;      // not OK: the job has failed
    std::unique_ptr<PromptBuilder> builder;
    Prompt prompt;
    uint64_t plan_ns = 0;
    Fused out;
    // Set for one round.
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

  // Drops the entries' state of a round at its end.
  struct EndOfRound {
    std::vector<Entry>& entries;
    ~EndOfRound() {
      for (Entry& e : entries) {
        e.end_round();
      }
    }
  };

  // Looks the prompt up, and adapts entry.fuse to the records that were found.
  Status prepare(Entry& entry, std::span<const int32_t> resident);
  // Runs all layers of the entries that are alive. False: a damaged chunk was replaced, begin
  // again.
  bool round(std::unique_ptr<Sequence>& resident);
  bool run_layers(LayerFeed& feed);
  Status begin_passes(LayerFeed& feed);
  void finish(Entry& entry);
  // Rows that went through the whole layer, including the question's rows that were computed twice.
  static uint64_t rows_through(const Entry& entry, uint32_t layer);
  // Adds the measured time of the pass, against the time expected of the machine, to its pace.
  void learn_pace(const Entry& entry) const;
  // For prompts whose drift maps do not fit: prefills in full, or fails, as on_untrusted says.
  // True: one begins again.
  bool act_on_doubts(std::span<const int32_t> resident);
  // Entries with the stored chunk `id` treat it as missing. False: there are no such entries.
  bool replace_damaged(const Sha256& id, const Status& damage);
  uint32_t choose_depth(const LayerFeed& feed) const;
  // If `status` is an error, `entry` has failed with it.
  static void settle(Entry& entry, const Status& status);

  const std::shared_ptr<const Model>& model_;
  const StoreAccess& store_;
  const uint32_t n_layers_;
  const Stopwatch clock_;
  std::shared_ptr<SharedLookup> lookup_ = std::make_shared<SharedLookup>();
  std::vector<Entry> entries_;
};

}  // namespace blend
