// question: deviation weighted by the question's attention.
//
// A row may deviate much and matter little: what the answer reads of the cache is what the question
// attends to. The score is the row's deviation times the attention probability that the question's
// rows put on it at the check layer, where keys are still fresh (the idea of ProphetKV and of
// CacheClip, with the model's own question instead of a second model).
#include "fusion/policy/policy.h"

namespace blend {
namespace {

class Question final : public RankingPolicy {
 public:
  Needs needs() const override { return {.deviation = true, .question_attention = true}; }

 private:
  Status score(const ChoicePoint& at, std::span<const uint32_t> candidates,
               std::span<float> scores) const override {
    for (size_t i = 0; i < candidates.size(); ++i) {
      const uint32_t row = candidates[i];
      scores[i] = at.deviation[row] * at.question_attention[row];
    }
    return Status::ok();
  }
};

}  // namespace

std::unique_ptr<SelectionPolicy> make_question() { return std::make_unique<Question>(); }

}  // namespace blend
