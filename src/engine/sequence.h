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

  // Rows that everything attends to at APE's temperature.
  const TemperedRows& tempered() const { return tempered_; }

  // Says that slots 0 .. tokens.size()-1 are filled in every layer and gives the last row's logits.
  // Nothing has changed where it throws.
  void set_filled(const std::vector<int32_t>& tokens, std::vector<float> logits,
                  TemperedRows tempered = {});

  // Makes room for `capacity` rows in all; what is there stays. On failure nothing has changed.
  Status reserve(uint32_t capacity);

  // Appends tokens (checked by the caller) by ordinary prefill. On failure the sequence is as
  // before: slots past n_rows() may hold anything. CONTEXT_LENGTH when they do not fit.
  // One token shares the pass over the weights with those of other sequences, where the backend
  // can do that; `member`: of whom more will come.
  Status append(std::span<const int32_t> tokens, const Watch& watch,
                SharedSteps::Member* member = nullptr);
  // append() of one token to each of several sequences of one model. `ahead`: tokens that may come
  // behind it, which go through the layers with it where there is room. As long as what is appended
  // next is what was foretold, it is there already, to the last bit what it would have been.
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

  // Puts `tokens` (checked by the caller) in the place of the n_old rows from `first` on
  // (AttentionStore 3.4, decoupled positions): the new rows are computed and see what precedes
  // them; the rows behind keep the K, V they have, K turned to its new place. The last row is
  // computed anew, as if it had just been decoded, so that its logits are those of the rows as they
  // now are. Nothing at all happens when there is nothing to take out or put in. On failure the
  // sequence is as before. INVALID_ARGUMENT: rows that are not there, or no row left;
  // CONTEXT_LENGTH.
  Status replace(uint64_t first, uint64_t n_old, std::span<const int32_t> tokens,
                 const Watch& watch);

  // A further sequence with the same rows, logits and room; K and V are shared until written to,
  // where the backend can do that.
  Result<std::unique_ptr<Sequence>> fork();

  // Steps of one token are recorded and run again where the backend can do that; not from here on.
  void issue_every_step() {
    may_record_ = false;
    recorded_.reset();
  }
  bool records() const { return recorded_ != nullptr; }  // as of the last step

 private:
  friend class SharedSteps;
  Sequence() = default;
  static void append_together(std::span<Append> appends);
  // Those there are, to another cache that has room.
  Status copy_rows(KvCache& to, const Ropes& ropes) const;
  // append() of one token, if it is there already; if not, what was foretold is forgotten.
  bool take_ahead(int32_t token);
  // append() of one token by itself: in scratch of its own, in another's (Forward::
  // create_for_steps(), which outlives the sequence), there without its logits; and of any number
  // but its logits.
  Status step(int32_t token, const Watch& watch, float* logits);
  Status step(Forward& scratch, int32_t token, const Watch& watch, float* logits);
  Status step(Forward& scratch, int32_t token, const Watch& watch);
  // Which rows are tempered is read from the host's memory at every step.
  bool may_record() const { return may_record_ && tempered_.empty(); }
  Status issue(Forward& forward, std::span<const int32_t> tokens, const uint32_t* pos,
               const Watch& watch) const;

  std::shared_ptr<const Model> model_;
  std::unique_ptr<KvCache> cache_;
  std::shared_ptr<const Ropes> ropes_;
  std::unique_ptr<Forward> step_;  // scratch of steps by itself, kept between them
  // Works on the cache and in recorded_in_. The first step is not recorded: many a fusion takes one
  // only.
  std::unique_ptr<RecordedStep> recorded_;
  const Forward* recorded_in_ = nullptr;
  bool may_record_ = true, stepped_ = false;
  std::vector<int32_t> tokens_;  // [n_rows], room for capacity()
  std::vector<float> logits_;
  TemperedRows tempered_;
  // Rows behind n_rows() whose K and V are in the cache, and the logits behind each.
  struct Ahead {
    int32_t token = 0;
    std::vector<float> logits;  // [n_vocab]
  };
  std::deque<Ahead> ahead_;
};

}  // namespace blend
