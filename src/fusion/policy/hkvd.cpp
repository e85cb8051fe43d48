// hkvd: the rows whose fresh K, V lie furthest from their stored ones (CacheBlend 4.2). Which of K
// and V, and in which norm, is the fuse's rule of deviation.
//
// If weighed, a row's distance is multiplied by the attention that other rows pay to it, because
// that much of its error reaches them. The attention is that of the rows of its own chunk, stored
// with the chunk (engine/context_impact.h), so the fuse measures nothing more.
#include <cmath>

#include "fusion/policy/policy.h"

namespace blend {
namespace {

class Hkvd final : public RankingPolicy {
 public:
  Hkvd() : RankingPolicy(Policy::hkvd) {}

 private:
  Status score(const ChoicePoint& at, std::span<const uint32_t> candidates,
               std::span<float> scores) const override {
    for (size_t i = 0; i < candidates.size(); ++i) scores[i] = at.deviation[candidates[i]];
    return Status::ok();
  }
};

class WeighedHkvd final : public RankingPolicy {
 public:
  explicit WeighedHkvd(DeviationNorm norm) : RankingPolicy(Policy::hkvd), norm_(norm) {}

 private:
  Status score(const ChoicePoint& at, std::span<const uint32_t> candidates,
               std::span<float> scores) const override {
    size_t i = 0;
    for (const PromptSegment& s : at.prompt.segments) {
      for (; i < candidates.size() && candidates[i] < s.first_row + s.n_rows; ++i) {
        const float deviation = at.deviation[candidates[i]];
        const float distance = norm_ == DeviationNorm::l2 ? std::sqrt(deviation) : deviation;
        scores[i] = distance * attention_inside(s, candidates[i] - s.first_row);
      }
    }
    return Status::ok();
  }

  const DeviationNorm norm_;
};

}  // namespace

std::unique_ptr<SelectionPolicy> make_hkvd(const PolicySettings& settings) {
  if (settings.weighed) return std::make_unique<WeighedHkvd>(settings.norm);
  return std::make_unique<Hkvd>();
}

}  // namespace blend
