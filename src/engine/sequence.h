// Sequence: a prompt's KV cache, how far it is filled, and the logits of its last row.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "engine/forward.h"
#include "engine/model.h"
#include "engine/shared_steps.h"

namespace blend {

// Not thread-safe; shares its model's life.
class Sequence {
 public:
  // Empty, with room for `capacity` rows.
  static Result<std::unique_ptr<Sequence>> create(std::shared_ptr<const Model> model,
                                                  uint32_t capacity);

  const Model& model() const { return *model_; }
  const std::shared_ptr<const Model>& shared_model() const { return model_; }
  KvCache& cache() { return *cache_; }
  const Ropes& ropes() const { return *ropes_; }
  uint32_t n_rows() const { return static_cast<uint32_t>(tokens_.size()); }
  const std::vector<int32_t>& tokens() const { return tokens_; }  // [n_rows]
  uint32_t capacity() const { return cache_->capacity(); }
  uint32_t room() const { return capacity() - n_rows(); }
  // CONTEXT_LENGTH where n more tokens do not fit.
  Status check_room(size_t n) const;
  const std::vector<float>& logits() const { return logits_; }  // [n_vocab]; empty before the first

  // Rows that later rows attend to at APE's temperature.
  const TemperedRows& tempered() const { return tempered_; }

  // Declares slots 0 .. tokens.size()-1 filled in every layer and sets the last row's logits.
  // If it throws, nothing has changed.
  void set_filled(const std::vector<int32_t>& tokens, std::vector<float> logits,
                  TemperedRows tempered = {});

  // Makes room for `capacity` rows in all; existing rows stay. On failure nothing has changed.
  Status reserve(uint32_t capacity);

  // Appends tokens (checked by the caller) by ordinary prefill. On failure the sequence is as
  // before: slots past n_rows() may hold anything. CONTEXT_LENGTH when they do not fit.
  // One token shares the pass over the weights with those of other sequences, where the backend
  // supports that; `member`: the generation that will append more.
  Status append(std::span<const int32_t> tokens, const Watch& watch,
                SharedSteps::Member* member = nullptr);
  // append() of one token to each of several sequences of one model. `ahead`: draft tokens to
  // follow it, computed in the same pass where there is room. While the tokens appended next are
  // the drafted ones, they are there already, bit for bit what they would have been.
  struct Append {
    Sequence* sequence = nullptr;
    int32_t token = 0;
    Watch watch;
    SharedSteps::Member* member = nullptr;
    Status status = Status::ok();  // of append_each()
    std::span<const int32_t> ahead = {};
  };
  static void append_each(std::span<Append> appends);
  // Whether `token` is there already.
  bool has_ahead(int32_t token) const { return !ahead_.empty() && ahead_.front().token == token; }
  void forget_ahead() { ahead_.clear(); }

  // Replaces the n_old rows from `first` on with `tokens` (checked by the caller)
  // (AttentionStore 3.4, decoupled positions): the new rows are computed and see what precedes
  // them; the rows after them keep their K, V, with K rotated to its new position. The last row is
  // computed again, as if just decoded, so that its logits are those of the rows as they now
  // are. Does nothing when there is nothing to take out or put in. On failure the sequence is as
  // before. INVALID_ARGUMENT: rows that are not there, or no row left; CONTEXT_LENGTH.
  Status replace(uint64_t first, uint64_t n_old, std::span<const int32_t> tokens,
                 const Watch& watch);

  // Another sequence with the same rows, logits and capacity; K and V are shared until written
  // to, where the backend can do that.
  Result<std::unique_ptr<Sequence>> fork();

  // Steps of one token are recorded and replayed where the backend can do that; not from here on.
  void issue_every_step() {
    may_record_ = false;
    recorded_.reset();
  }
  bool records() const { return recorded_ != nullptr; }  // as of the last step

 private:
  friend class SharedSteps;
  Sequence() = default;
  static void append_together(std::span<Append> appends);
  // Copies the present rows to another cache that has room.
  Status copy_rows(KvCache& to, const Ropes& ropes) const;
  // append() of one token, if it was computed ahead; if not, the drafts are forgotten.
  bool take_ahead(int32_t token);
  // append() of one token by itself: in scratch of its own; in another's scratch (Forward::
  // create_for_steps(), which outlives the sequence), without its logits; and of any number
  // of tokens, without logits.
  Status step(int32_t token, const Watch& watch, float* logits);
  Status step(Forward& scratch, int32_t token, const Watch& watch, float* logits);
  Status step(Forward& scratch, int32_t token, const Watch& watch);
  // False for tempered rows: which rows are tempered is read from host memory at every step.
  bool may_record() const { return may_record_ && tempered_.empty(); }
  Status issue(Forward& forward, std::span<const int32_t> tokens, const uint32_t* pos,
               const Watch& watch) const;

  std::shared_ptr<const Model> model_;
  std::unique_ptr<KvCache> cache_;
  std::shared_ptr<const Ropes> ropes_;
  std::unique_ptr<Forward> step_;  // scratch of its own steps, kept between them
  // Works on the cache and in recorded_in_. The first step is not recorded: many a fusion takes one
  // only.
  std::unique_ptr<RecordedStep> recorded_;
  const Forward* recorded_in_ = nullptr;
  bool may_record_ = true, stepped_ = false;
  std::vector<int32_t> tokens_;  // [n_rows], room for capacity()
  std::vector<float> logits_;
  TemperedRows tempered_;
  // Rows after n_rows() whose K and V are in the cache, and the logits of each.
  struct Ahead {
    int32_t token = 0;
    std::vector<float> logits;  // [n_vocab]
  };
  std::deque<Ahead> ahead_;
  // Its cache may lack states (Gated DeltaNets), so that the next step passes over all rows: it is
  // a step by itself, for the steps of others must not wait for that.
  bool scans_ = false;
};

}  // namespace blend
