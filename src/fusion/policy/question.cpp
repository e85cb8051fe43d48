// question: deviation weighted by the question's attention.
//
// A row may deviate much and matter little: the answer depends on the rows that the question
// attends to. The score is the row's deviation times the attention probability that the question's
// rows put on it at the check layer, where keys are still fresh (the idea of ProphetKV and of
// CacheClip, with the model's own question instead of a second model).
//
// If weighed, the distance (not its square) is multiplied by the geometric mean of two attentions
// to the row: the question's, and that of the rows of its own chunk, through which its error
// spreads (engine/context_impact.h).
#include <cmath>

#include "fusion/policy/policy.h"

namespace blend {
namespace {

class Question final : public RankingPolicy {
 public:
  Question() : RankingPolicy(Policy::question) {}

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

class WeighedQuestion final : public RankingPolicy {
 public:
  explicit WeighedQuestion(DeviationNorm norm) : RankingPolicy(Policy::question), norm_(norm) {}

 private:
  Status score(const ChoicePoint& at, std::span<const uint32_t> candidates,
               std::span<float> scores) const override {
    size_t i = 0;
    for (const PromptSegment& s : at.prompt.segments) {
      for (; i < candidates.size() && candidates[i] < s.first_row + s.n_rows; ++i) {
        const uint32_t row = candidates[i];
        const float deviation = at.deviation[row];
        const float distance = norm_ == DeviationNorm::l2 ? std::sqrt(deviation) : deviation;
        scores[i] = distance *
                    std::sqrt(at.question_attention[row] * attention_inside(s, row - s.first_row));
      }
    }
    return Status::ok();
  }

  const DeviationNorm norm_;
};

}  // namespace

std::unique_ptr<SelectionPolicy> make_question(const PolicySettings& settings) {
  if (settings.weighed) return std::make_unique<WeighedQuestion>(settings.norm);
  return std::make_unique<Question>();
}

}  // namespace blend
