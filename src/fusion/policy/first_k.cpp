// first_k: the first rows of every chunk (EPIC, Hu et al. 2024, "LegoLink").
//
// In a chunk that was prefilled by itself the first tokens draw the attention that belongs to the
// first tokens of the prompt. EPIC recomputes only these, a fixed k of every chunk but the first
// (which is exact here, so never a candidate), in all layers. Nothing is measured.
//
// The budget is split over the chunks in proportion to their rows: rows are ranked by their
// position in the chunk divided by the chunk's length. That is Adams' apportionment: every chunk
// gets its first row before any gets a second, and a larger budget never takes a row away.
#include <algorithm>

#include "fusion/policy/policy.h"

namespace blend {
namespace {

class FirstK final : public RankingPolicy {
 public:
  FirstK() : RankingPolicy(Policy::first_k) {}

 private:
  Status score(const ChoicePoint& at, std::span<const uint32_t> candidates,
               std::span<float> scores) const override {
    size_t i = 0;
    for (const PromptSegment& s : at.prompt.segments) {
      for (; i < candidates.size() && candidates[i] < s.first_row + s.n_rows; ++i) {
        const uint32_t place = candidates[i] - s.first_row;
        scores[i] = -static_cast<float>(place) / static_cast<float>(s.n_rows);
      }
    }
    return Status::ok();
  }
};

}  // namespace

std::unique_ptr<SelectionPolicy> make_first_k(const PolicySettings&) {
  return std::make_unique<FirstK>();
}

}  // namespace blend
