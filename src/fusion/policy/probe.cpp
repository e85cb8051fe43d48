// probe: the rows that the question attends to and that depend on the text before their chunk.
//
// First the question's own rows go through layers 0 and 1 over the stored rows, which costs hardly
// anything. So their attention at layer 1 is known before a single row of a chunk is computed. With
// the statistics of chunks (engine/context_impact.h) the score is sqrt(question * inside) *
// outside: how much the question and the row's own chunk read the row, times how much it depended
// on earlier text. ProphetKV found that the question's attention chooses better than deviations at
// one layer (arXiv 2602.02579).
//
// cascade: probe chooses some rows before layer 0. At the check layer those go on whose deviation,
// times how much they are read, is largest. Layer 0 is computed for the first choice only.
#include <cmath>

#include "fusion/policy/policy.h"
#include "fusion/policy/row_impact.h"

namespace blend {
namespace {

class Probe final : public RankingPolicy {
 public:
  Probe() : RankingPolicy(Policy::probe) {}

 private:
  Status score(const ChoicePoint& at, std::span<const uint32_t> candidates,
               std::span<float> scores) const override {
    return for_each_impact(at, candidates, [&](size_t i, const RowImpact& row) {
      const float question = at.question_attention[candidates[i]];
      scores[i] = std::sqrt(question * row.inside) * row.outside;
    });
  }
};

class Cascade final : public RankingPolicy {
 public:
  explicit Cascade(DeviationNorm norm) : RankingPolicy(Policy::cascade), norm_(norm) {}

 private:
  Status score(const ChoicePoint& at, std::span<const uint32_t> candidates,
               std::span<float> scores) const override {
    return for_each_impact(at, candidates, [&](size_t i, const RowImpact& row) {
      const float read = std::sqrt(at.question_attention[candidates[i]] * row.inside);
      if (at.layer == 0) {
        scores[i] = read * row.outside;
        return;
      }
      const float deviation = at.deviation[candidates[i]];
      scores[i] = read * (norm_ == DeviationNorm::l2 ? std::sqrt(deviation) : deviation);
    });
  }

  const DeviationNorm norm_;
};

}  // namespace

std::unique_ptr<SelectionPolicy> make_probe(const PolicySettings&) {
  return std::make_unique<Probe>();
}

std::unique_ptr<SelectionPolicy> make_cascade(const PolicySettings& settings) {
  return std::make_unique<Cascade>(settings.norm);
}

}  // namespace blend
