// FidelityChecks: compares the answers of some fuses with full prefill in idle time.
//
// One fuse in n is marked. While its answer is generated, the tokens that the fused cache prefers
// are noted (answer_trace.h). Afterwards the idle worker prefills prompt and answer in full, in one
// pass, and writes to the book at how many positions both prefer the same token.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/threads/cancel.h"
#include "base/threads/guarded.h"
#include "engine/model.h"
#include "fusion/fidelity/answer_trace.h"
#include "fusion/idle/idle_worker.h"
#include "fusion/resolve/fidelity_book.h"
#include "fusion/run/fuse.h"

namespace blend {

// Thread-safe. In a child of the process that made it, it does nothing.
class FidelityChecks final : private IdleWorker::Client {
 public:
  static constexpr uint32_t kUsualEvery = 16;
  static constexpr uint32_t kNever = UINT32_MAX;
  // The first fuses of a kind and ratio that has no checks yet are all marked, up to this number.
  static constexpr uint32_t kFirst = 4;
  // Maximum number of waiting answers; further ones are dropped.
  static constexpr size_t kMostQueued = 64;

  struct Counts {
    uint64_t done = 0, dropped = 0, queued = 0;
  };

  struct Options {
    uint32_t every = kUsualEvery;                    // one fuse in `every` is marked
    uint32_t tokens = AnswerTrace::kUsualPositions;  // maximum number compared in an answer
  };
  FidelityChecks(std::shared_ptr<IdleWorker> worker, std::shared_ptr<FidelityBook> book,
                 const Options& options);
  ~FidelityChecks() override { close(); }
  FidelityChecks(const FidelityChecks&) = delete;
  FidelityChecks& operator=(const FidelityChecks&) = delete;

  // Drops the queued answers, and the running check within about a layer's compute time. Nothing is
  // marked or queued afterwards.
  void close();

  // Decides whether the answer to this fuse is checked; if so, it sets the flag in the fuse's info.
  // Only fuses that keep stored rows of chunks are checked. `fused` must be as the fuse left it.
  std::optional<AnswerTrace> mark(Fused& fused);
  // Queues a finished answer: the rows of `sequence` after the prompt, as far as positions were
  // noted. The check gets the ThreadCap of this thread. False: there is nothing to check, the queue
  // is full, or this is closed.
  bool add(AnswerTrace trace, const Sequence& sequence);
  // Runs all queued checks now, without waiting for idle time.
  void run_all();

  FidelityBook& book() const { return *book_; }
  Counts counts() const;

 private:
  struct Job {
    std::shared_ptr<const Model> model;
    AnswerTrace trace;
    std::vector<int32_t> tokens;  // prompt and answer, without the answer's last token
    uint32_t n_threads = 0;       // ThreadCap of the call that queued it
  };
  bool work() override;
  Result<CheckedAnswer> check(const Job& job);
  bool forked() const { return worker_->forked(); }

  const std::shared_ptr<IdleWorker> worker_;
  const std::shared_ptr<FidelityBook> book_;
  const Options options_;
  CancelToken cancel_;  // of the running check

  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<Job> queue_ BLEND_GUARDED_BY(mutex_);
  bool working_ BLEND_GUARDED_BY(mutex_) = false;
  bool closed_ BLEND_GUARDED_BY(mutex_) = false;
  uint64_t n_fuses_ BLEND_GUARDED_BY(mutex_) = 0;  // that could have been marked
  // Marked first, by key and rung.
  std::map<std::pair<FidelityKey, uint32_t>, uint32_t> first_ BLEND_GUARDED_BY(mutex_);
  Counts counts_ BLEND_GUARDED_BY(mutex_);
};

}  // namespace blend
