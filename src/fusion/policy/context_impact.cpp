// context_impact: the rows that lean most on the text before their chunk, by what was seen of it
// when the chunk was precomputed (Cache-Craft, Agarwal et al. 2025; engine/context_impact.h says
// what). Nothing is measured in the fuse, so rows that are left out cost nothing from layer 0 on.
#include "fusion/policy/policy.h"

namespace blend {
namespace {

class ContextImpact final : public RankingPolicy {
 public:
  Needs needs() const override { return {}; }

 private:
  Status score(const ChoicePoint& at, std::span<const uint32_t> candidates,
               std::span<float> scores) const override {
    size_t i = 0;
    for (const PromptSegment& s : at.prompt.segments) {
      if (i < candidates.size() && candidates[i] < s.first_row + s.n_rows && !s.has_impact()) {
        return make_error(BLEND_E_NOT_FOUND,
                          "chunk %s was stored without its rows' context impact: precompute it "
                          "anew, or choose another policy",
                          to_hex(s.id).c_str());
      }
      for (; i < candidates.size() && candidates[i] < s.first_row + s.n_rows; ++i) {
        const RowImpact& row = s.chunk->meta().impact[candidates[i] - s.first_row];
        scores[i] = row.outside * row.inside;
      }
    }
    return Status::ok();
  }
};

}  // namespace

std::unique_ptr<SelectionPolicy> make_context_impact() { return std::make_unique<ContextImpact>(); }

}  // namespace blend
