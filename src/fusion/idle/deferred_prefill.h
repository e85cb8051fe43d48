// DeferredPrefill: deferred prefills. A fuse computes missing chunks in its own pass; afterwards
// they are prefilled by themselves and stored, so that the next prompt finds them.
//
// The rows that a pass computes for a chunk depend on the chunks before it; stored rows must not
// (CacheBlend, section 4). So the chunk is computed twice, but the second time in idle time
// (idle_worker.h), layer by layer. The same queue makes better records for chunks that were found:
// after the chunk that really preceded it, and in the context of the other chunks of the prompt.
#pragma once

#include <chrono>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <set>

#include "base/late_errors.h"
#include "base/threads/cancel.h"
#include "base/threads/guarded.h"
#include "engine/model.h"
#include "fusion/idle/idle_worker.h"
#include "fusion/prompt/prompt.h"
#include "store/chunk_store.h"

namespace blend {

// Thread-safe. In a child of the process that made it, it does nothing.
class DeferredPrefill final : private IdleWorker::Client {
 public:
  using Deadline = std::optional<std::chrono::steady_clock::time_point>;  // none: for ever

  // Becomes the worker's first client. Its runtime's log is told of failures.
  DeferredPrefill(std::shared_ptr<IdleWorker> worker, std::shared_ptr<ChunkStore> store);
  // Drops the queued jobs, and the running one within about a layer's compute time: the next fuse
  // queues them again, and closing must not take minutes. One record of the log says how many.
  ~DeferredPrefill() override;
  DeferredPrefill(const DeferredPrefill&) = delete;
  DeferredPrefill& operator=(const DeferredPrefill&) = delete;

  // Queues a chunk; its prefill gets the ThreadCap of this thread. False: the queue is full, or
  // there is no memory or thread for it, so the next fuse misses the chunk again. Also false for a
  // record with when_seen_twice that is asked for the first time. A chunk that is queued already,
  // or being prefilled, is not queued again.
  bool add(std::shared_ptr<const Model> model, DeferredChunk chunk);
  // Runs all jobs now, without waiting for idle time, and returns when they are done. Gives the
  // first error since the last flush. The store's write-back must be flushed afterwards.
  Status flush();
  // Moves chunk `id` to the front and waits until it is in the store's write-back, or has failed.
  // Its error is given (LateErrors) until the chunk is queued again. Nothing: `deadline` came
  // first. OK also for a chunk that was never queued.
  std::optional<Status> outcome(const Sha256& id, Deadline deadline);
  size_t n_left() const;  // queued or running

 private:
  struct Job {
    std::shared_ptr<const Model> model;
    DeferredChunk chunk;
    uint32_t n_threads = 0;  // ThreadCap of the fuse that queued it
  };

  // Whether `id` was passed to this before, not long ago.
  bool seen_before(const Sha256& id) BLEND_REQUIRES(mutex_);
  bool work() override;
  // The first job and others after the same prefix: short chunks are prefilled together.
  std::list<Job> take() BLEND_REQUIRES(mutex_);
  // Prefills the chunks that the store has not got, and puts them into its write-back.
  Status prefill(const std::list<Job>& jobs);
  Status prefill_or_out_of_memory(const std::list<Job>& jobs);
  bool forked() const { return worker_->forked(); }

  const std::shared_ptr<IdleWorker> worker_;
  const std::shared_ptr<ChunkStore> store_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::list<Job> queue_ BLEND_GUARDED_BY(mutex_);  // taking from it allocates nothing
  std::set<Sha256> ids_ BLEND_GUARDED_BY(mutex_);  // queued or running
  LateErrors errors_ BLEND_GUARDED_BY(mutex_);
  // Records that were asked for once, the oldest first.
  std::deque<Sha256> seen_order_ BLEND_GUARDED_BY(mutex_);
  std::set<Sha256> seen_ BLEND_GUARDED_BY(mutex_);
  CancelToken cancel_;  // of the running job
};

}  // namespace blend
