// AnswerTrace: the token that a fused cache preferred at each position of an answer, noted while
// the answer is generated, for a check against full prefill (fidelity_checks.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "control/fidelity.h"
#include "fusion/resolve/fidelity_book.h"

namespace blend {

// Not thread-safe. Copies belong to the same fuse, of which only the first copy is checked.
class AnswerTrace {
 public:
  static constexpr uint32_t kUsualPositions = 32, kMostPositions = 256;
  // KL is taken at the first positions only, over the likeliest tokens and all others as one. That
  // is a lower bound, and takes half a kilobyte a position, whatever the vocabulary.
  static constexpr uint32_t kKlPositions = 8;
  static constexpr size_t kLikeliest = 64;

  // Notes at most `most` positions.
  AnswerTrace(const FidelityKey& key, double ratio, uint32_t n_prompt,
              uint32_t most = kUsualPositions)
      : key_(key), ratio_(ratio), n_prompt_(n_prompt), most_(most) {}

  const FidelityKey& key() const { return key_; }
  double ratio() const { return ratio_; }
  uint32_t n_prompt() const { return n_prompt_; }
  uint32_t n_positions() const { return static_cast<uint32_t>(positions_.size()); }
  bool full() const { return positions_.size() >= most_; }
  // True for the first copy that calls it: that one is checked.
  bool claim() { return !claimed_->exchange(true); }

  // Notes the logits from which the token of row n_rows is sampled. Rows come one after the other;
  // a row that was noted before, or that leaves a gap, is ignored. May throw bad_alloc.
  void note(uint32_t n_rows, std::span<const float> logits);

  // Compares with full prefill's logits at a position; adds the KL if its logits were noted.
  void compare(uint32_t position, std::span<const float> full, CheckedAnswer& out) const;

 private:
  struct Position {
    int32_t preferred = 0;
    std::vector<std::pair<int32_t, float>> likeliest;  // token, log of its probability
    float others = 0;                                  // log of all others' probability
  };

  FidelityKey key_;
  double ratio_;
  uint32_t n_prompt_;
  uint32_t most_;
  std::vector<Position> positions_;
  std::shared_ptr<std::atomic<bool>> claimed_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace blend
