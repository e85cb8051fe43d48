// callback: the host's scores, from knowledge that the library does not have (a retriever's
// relevance, a small model's attention).
#include <cmath>

#include "fusion/policy/policy.h"

namespace blend {
namespace {

class Callback final : public RankingPolicy {
 public:
  explicit Callback(ScoreFn score) : RankingPolicy(Policy::callback), score_(std::move(score)) {}

 private:
  Status score(const ChoicePoint& at, std::span<const uint32_t> candidates,
               std::span<float> scores) const override {
    std::vector<float> deviation(candidates.size());
    for (size_t i = 0; i < candidates.size(); ++i) deviation[i] = at.deviation[candidates[i]];
    std::copy(deviation.begin(), deviation.end(), scores.begin());
    if (const int32_t rc = score_(at.layer, candidates, deviation, scores); rc != 0) {
      return {BLEND_E_CALLBACK, "the score callback asked to stop", rc};
    }
    for (size_t i = 0; i < candidates.size(); ++i) {
      if (std::isnan(scores[i])) {
        return make_error(BLEND_E_INVALID_ARGUMENT,
                          "the score callback gave a NaN for row %u; give a number", candidates[i]);
      }
    }
    return Status::ok();
  }

  ScoreFn score_;
};

}  // namespace

std::unique_ptr<SelectionPolicy> make_callback(const PolicySettings& settings) {
  return std::make_unique<Callback>(settings.score);
}

}  // namespace blend
