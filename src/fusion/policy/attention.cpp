// attention: the rows that the question attends to in the middle layers.
//
// First the question's rows go through the layers over the stored rows, up to the last asked layer
// (fusion/request/asked_layers.h). The score of a row is the attention probability that they put on
// it, mean over heads, rows and asked layers. Choosing by the question's attention is ProphetKV's
// idea (arXiv 2602.02579); asking the middle layers, over the stored rows and before layer 0, is
// ours. It needs no statistics of chunks.
#include "fusion/policy/policy.h"

namespace blend {
namespace {

class Attention final : public RankingPolicy {
 public:
  Attention() : RankingPolicy(Policy::attention) {}

 private:
  Status score(const ChoicePoint& at, std::span<const uint32_t> candidates,
               std::span<float> scores) const override {
    for (size_t i = 0; i < candidates.size(); ++i) {
      scores[i] = at.question_attention[candidates[i]];
    }
    return Status::ok();
  }
};

}  // namespace

std::unique_ptr<SelectionPolicy> make_attention(const PolicySettings&) {
  return std::make_unique<Attention>();
}

}  // namespace blend
