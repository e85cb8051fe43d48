// LaterPrefill: chunks that a fuse missed and computed in its own pass, prefilled by themselves and
// stored behind it, so that the next prompt finds them.
//
// What a pass computes of a chunk has seen the chunks before it; what is stored must not have
// (CacheBlend, section 4). So the chunk is computed twice, but nobody waits for the second time: a
// thread of its own does it layer by layer, and before each stands back as long as a call on the
// context is running or has just ended.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "engine/model.h"
#include "fusion/plan.h"
#include "store/chunk_store.h"

namespace blend {

// Thread-safe. Its thread starts with the first chunk. In a child of the process that made it the
// thread does not exist, and it does nothing.
class LaterPrefill {
 public:
  // Events of `runtime` tell what fails.
  LaterPrefill(std::shared_ptr<Runtime> runtime, std::shared_ptr<ChunkStore> store);
  ~LaterPrefill();  // does what is queued
  LaterPrefill(const LaterPrefill&) = delete;
  LaterPrefill& operator=(const LaterPrefill&) = delete;

  // False: the queue is full, and the chunk will be missed again. A chunk that is queued already,
  // or under way, is not queued again.
  bool add(std::shared_ptr<const Model> model, LaterChunk chunk);
  // Waits until nothing is left to do, without standing back; the first error since the last flush.
  // The store's own write-back comes after it.
  Status flush();

 private:
  struct Job {
    std::shared_ptr<const Model> model;
    LaterChunk chunk;
  };

  void run();
  Status prefill(Job& job);
  bool forked() const;

  const int process_;
  const std::shared_ptr<Runtime> runtime_;
  const std::shared_ptr<ChunkStore> store_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> queue_;  // guarded by mutex_
  std::set<Sha256> ids_;   // queued or under way; guarded by mutex_
  bool stop_ = false;      // guarded by mutex_
  Status error_;           // the first since the last flush; guarded by mutex_
  std::thread thread_;     // started under mutex_
};

}  // namespace blend
