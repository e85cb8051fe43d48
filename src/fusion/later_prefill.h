// LaterPrefill: chunks that a fuse missed and computed in its own pass, prefilled by themselves and
// stored after it, so that the next prompt finds them.
//
// What a pass computes of a chunk has seen the chunks before it; what is stored must not have
// (CacheBlend, section 4). So the chunk is computed twice, but nobody waits for the second time: it
// is done in idle time (idle_worker.h), layer by layer. Likewise the records that prompts would
// have been served better by: after what really preceded a chunk, and in the context of what stood
// beside it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <set>

#include "base/cancel.h"
#include "base/late_errors.h"
#include "engine/model.h"
#include "fusion/idle_worker.h"
#include "fusion/prompt.h"
#include "store/chunk_store.h"

namespace blend {

// Thread-safe. In a child of the process that made it, it does nothing.
class LaterPrefill final : private IdleWorker::Client {
 public:
  using Deadline = std::optional<std::chrono::steady_clock::time_point>;  // none: for ever

  // The worker's first client. Events of its runtime tell what fails.
  LaterPrefill(std::shared_ptr<IdleWorker> worker, std::shared_ptr<ChunkStore> store);
  // Gives up what is queued, and what is under way within about a layer's compute time: chunks that
  // can be missed again are not worth a close that takes minutes. One event says how many.
  ~LaterPrefill() override;
  LaterPrefill(const LaterPrefill&) = delete;
  LaterPrefill& operator=(const LaterPrefill&) = delete;

  // With the ThreadCap of this thread. False: the queue is full, or there is no memory or thread
  // for it, and the chunk will be missed again; or it is one that is made when it is seen twice,
  // and this is the first time. A chunk that is queued already, or under way, is not queued again.
  bool add(std::shared_ptr<const Model> model, LaterChunk chunk);
  // Waits until nothing is left to do, without standing back; the first error since the last flush.
  // The store's own write-back comes after it.
  Status flush();
  // Waits until chunk `id`, which goes before all others then, is with the store's write-back or
  // has failed, whose error it gives (LateErrors) until it is queued again. Nothing: `deadline`
  // came first. OK also for a chunk that was never queued.
  std::optional<Status> outcome(const Sha256& id, Deadline deadline);
  size_t n_left() const;  // queued or under way

 private:
  struct Job {
    std::shared_ptr<const Model> model;
    LaterChunk chunk;
    uint32_t n_threads = 0;  // ThreadCap of the fuse that left it
  };

  // Whether `id` was given here before, of late. Under mutex_.
  bool seen_before(const Sha256& id);
  bool work() override;
  Status prefill(Job& job);
  void tell(int32_t code, const std::string& message) const;
  bool forked() const { return worker_->forked(); }

  const std::shared_ptr<IdleWorker> worker_;
  const std::shared_ptr<ChunkStore> store_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> queue_;  // guarded by mutex_
  std::set<Sha256> ids_;   // queued or under way; guarded by mutex_
  LateErrors errors_;      // guarded by mutex_
  // Records that were asked for once, the oldest first; both guarded by mutex_.
  std::deque<Sha256> seen_order_;
  std::set<Sha256> seen_;
  CancelToken cancel_;  // of what is under way
};

}  // namespace blend
