// context_impact: the rows that depend most on the text before their chunk, by statistics that were
// taken when the chunk was precomputed (Cache-Craft, Agarwal et al. 2025; engine/context_impact.h).
// Nothing is measured in the fuse, so rows that are left out cost nothing from layer 0 on.
#include "fusion/policy/policy.h"
#include "fusion/policy/row_impact.h"

namespace blend {
namespace {

class ContextImpact final : public RankingPolicy {
 public:
  ContextImpact() : RankingPolicy(Policy::context_impact) {}

 private:
  Status score(const ChoicePoint& at, std::span<const uint32_t> candidates,
               std::span<float> scores) const override {
    return for_each_impact(at, candidates, [&](size_t i, const RowImpact& row) {
      scores[i] = row.outside * row.inside;
    });
  }
};

}  // namespace

std::unique_ptr<SelectionPolicy> make_context_impact(const PolicySettings&) {
  return std::make_unique<ContextImpact>();
}

}  // namespace blend
