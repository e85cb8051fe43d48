// FidelityChecks: answers of some fuses, compared with full prefill in idle time.
//
// One fuse in n is marked. What its fused cache preferred is noted while an answer is generated
// (answer_trace.h); afterwards prompt and answer are prefilled in full, in one pass, by the idle
// worker. Whether both prefer the same token at each position of the answer goes into the book.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/cancel.h"
#include "engine/model.h"
#include "fusion/answer_trace.h"
#include "fusion/fidelity_book.h"
#include "fusion/fuse.h"
#include "fusion/idle_worker.h"

namespace blend {

// Thread-safe. In a child of the process that made it, it does nothing.
class FidelityChecks final : private IdleWorker::Client {
 public:
  static constexpr uint32_t kUsualEvery = 16;
  static constexpr uint32_t kNever = UINT32_MAX;
  // Fuses of a kind and ratio of which nothing is known are all marked, up to so many.
  static constexpr uint32_t kFirst = 4;
  // Answers that wait; a further one is dropped.
  static constexpr size_t kMostQueued = 64;

  struct Counts {
    uint64_t done = 0, dropped = 0, queued = 0;
  };

  struct Options {
    uint32_t every = kUsualEvery;                    // one fuse in so many is marked
    uint32_t tokens = AnswerTrace::kUsualPositions;  // of an answer, at most, that are compared
  };
  FidelityChecks(std::shared_ptr<IdleWorker> worker, std::shared_ptr<FidelityBook> book,
                 const Options& options);
  ~FidelityChecks() override { close(); }
  FidelityChecks(const FidelityChecks&) = delete;
  FidelityChecks& operator=(const FidelityChecks&) = delete;

  // Gives up what is queued, and what is under way within about a layer's compute time. Nothing is
  // marked or queued from here on.
  void close();

  // Whether the answer to this fuse, which nobody has changed since, is to be checked: then its
  // info says so. Of fuses that leave rows of chunks as they are stored.
  std::optional<AnswerTrace> mark(Fused& fused);
  // The answer is there: rows of `sequence` after the prompt, as far as positions were noted. With
  // the ThreadCap of this thread. False: there is nothing to check, no room, or it is closed.
  bool add(AnswerTrace trace, const Sequence& sequence);
  // Checks all that is queued now, without standing back.
  void run_all();

  FidelityBook& book() const { return *book_; }
  Counts counts() const;

 private:
  struct Job {
    std::shared_ptr<const Model> model;
    AnswerTrace trace;
    std::vector<int32_t> tokens;  // prompt and answer, but for the answer's last token
    uint32_t n_threads = 0;       // ThreadCap of the call that left it
  };
  bool work() override;
  Result<CheckedAnswer> check(const Job& job);
  bool forked() const { return worker_->forked(); }

  const std::shared_ptr<IdleWorker> worker_;
  const std::shared_ptr<FidelityBook> book_;
  const Options options_;
  CancelToken cancel_;  // of what is under way

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> queue_;  // mutex_, as all below
  bool working_ = false;
  bool closed_ = false;
  uint64_t n_fuses_ = 0;                                        // that could have been marked
  std::map<std::pair<FidelityKey, uint32_t>, uint32_t> first_;  // marked as such, by key and rung
  Counts counts_;
};

}  // namespace blend
