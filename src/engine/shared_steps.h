// SharedSteps: tokens of several sequences that are appended at the same time go through the layers
// together (continuous batching: Orca, Yu et al., OSDI '22), so that the weights are read once for
// all of them.
//
// There is no thread for it. The first caller to arrive while no step is running becomes leader: it
// runs all waiting requests, its own included, through all layers; later ones are in the next step.
// A leader that is done passes the lead to a waiting caller. A generation that took part in a step
// is expected in the next one, so the leader waits for it, but not longer than a small part of the
// step's time after its end (kPatienceShare): otherwise those that sample in turn would split into
// groups that never meet. A single caller never waits.
//
// Where the backend records steps, a row that is alone in its step is run from its sequence's
// recording, inside the step: callers that arrive meanwhile are in the next one, as always.
//
// On a CPU a step keeps its threads from its first layer to its last (ThreadPool::Run): a fuse,
// whose operations are long, does not come between its many short operations. If a fuse waits,
// it gets as much time as the step took before the next begins: each has about half of the time.
//
// What a row computes does not depend on who shares its step: every operation works on each row by
// itself, in the same order, and attention sees the row's own cache; where a product's order
// depends on its number of rows, every step has the same (BackendTraits::pads_steps), or the
// backend is told that they are steps (Tensor::steps). Therefore
// rows that are computed ahead, one after another in one cache, are what they would be in steps of
// their own.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/threads/guarded.h"
#include "engine/forward.h"

namespace blend {

class Sequence;

// Thread-safe. The model must outlive it.
class SharedSteps {
 public:
  using Clock = std::chrono::steady_clock;

  // How long a step waits for members of the last one: a share of its time, and at most this.
  static constexpr uint32_t kPatienceShare = 8;
  static constexpr std::chrono::milliseconds kMostPatience{10};

  // max_rows: most sequences in a step.
  SharedSteps(const Model& model, uint32_t max_rows);
  SharedSteps(const SharedSteps&) = delete;
  SharedSteps& operator=(const SharedSteps&) = delete;

  // A generation, which appends a token again and again. Used by one thread at a time.
  class Member {
   public:
    explicit Member(SharedSteps& steps) : steps_(steps) {}
    ~Member() { steps_.leave(*this); }
    Member(const Member&) = delete;
    Member& operator=(const Member&) = delete;

   private:
    friend class SharedSteps;
    SharedSteps& steps_;
    uint64_t expected_in_ = 0;  // the round in which it is expected; guarded by the mutex
  };

  struct Caller;
  // One token to append to a sequence, which nobody else uses meanwhile.
  struct Request {
    Sequence* sequence = nullptr;
    int32_t token = 0;
    const CancelToken* cancel = nullptr;  // may be null
    Member* member = nullptr;             // null: not expected again
    float* logits = nullptr;              // host [n_vocab], written
    // Draft tokens to follow it (Sequence::Append); they get the rows of a step that are left over.
    // Each has its logits.
    std::span<const int32_t> ahead = {};
    std::vector<float*> ahead_logits = {};  // [ahead], each host [n_vocab]

    // Results of run().
    Status status = Status::ok();
    size_t n_ahead = 0;  // of `ahead`: how many have been computed
    bool alone = false;  // no memory to do it with others: not done at all
    Caller* caller = nullptr;
    Request* next = nullptr;
  };
  // Blocks until all are done, each with its own status. CANCELLED within about a layer's time, or
  // a recorded step's; otherwise as Sequence::append().
  void run(std::span<Request> requests);

  uint64_t n_steps() const;  // so far
  uint64_t n_rows() const;   // in those, drafts included

 private:
  // A request of the step and its rows: its token's, and those of the first n_ahead drafts.
  struct Part {
    Request* request = nullptr;  // null: done
    uint32_t first = 0;
    uint32_t n_rows = 1;
    uint32_t n_ahead = 0;  // not failed so far
  };
  void leave(Member& member) BLEND_EXCLUDES(mutex_);
  void arrive(Request& request, Caller& caller) BLEND_REQUIRES(mutex_);
  void gather(MutexLock& lock) BLEND_REQUIRES(mutex_);
  void begin() BLEND_REQUIRES(mutex_);
  // True: the step is over. False: the leader has nothing left in it, but others have.
  // Lets go of the mutex while it computes.
  bool advance(const Caller& leader) BLEND_REQUIRES(mutex_);
  Status make_room(uint32_t rows);
  bool runs_recorded() const;
  Status compute_recorded();
  Status compute_layer();
  Status compute_logits();
  bool any_failed(const Part& part) const;
  void drop_cancelled() BLEND_REQUIRES(mutex_);
  void finish(size_t i, Status status) BLEND_REQUIRES(mutex_);
  void end() BLEND_REQUIRES(mutex_);  // the logits are there
  void hand_over() BLEND_REQUIRES(mutex_);
  uint32_t cap() const;

  const Model& model_;
  const uint32_t max_rows_;

  mutable Mutex mutex_;
  CondVar gathered_;                                   // the leader waits
  bool leading_ BLEND_GUARDED_BY(mutex_) = false;      // there is a leader
  Request* first_ BLEND_GUARDED_BY(mutex_) = nullptr;  // those that wait for a step, as they came
  Request** last_ BLEND_GUARDED_BY(mutex_) = &first_;
  size_t n_waiting_ BLEND_GUARDED_BY(mutex_) = 0;
  uint64_t round_ BLEND_GUARDED_BY(mutex_) = 1;
  size_t n_expected_ BLEND_GUARDED_BY(mutex_) = 0;      // members whose expected_in_ is round_
  Clock::time_point ended_ BLEND_GUARDED_BY(mutex_){};  // the last step
  Clock::duration took_ BLEND_GUARDED_BY(mutex_){};
  bool contested_ BLEND_GUARDED_BY(mutex_) = false;  // other regions waited for its threads
  uint64_t n_steps_ BLEND_GUARDED_BY(mutex_) = 0;
  uint64_t n_rows_ BLEND_GUARDED_BY(mutex_) = 0;

  // Used by the leader; members that others see are guarded too.
  bool stepping_ = false;
  Clock::time_point began_{};
  uint32_t layer_ = 0;
  std::vector<Part> parts_;
  std::vector<StepRow> rows_;
  std::vector<int32_t> tokens_;
  std::unique_ptr<Forward> forward_;
  uint32_t room_ = 0;  // rows of forward_
};

}  // namespace blend
