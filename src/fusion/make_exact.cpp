#include "fusion/make_exact.h"

#include <algorithm>

namespace blend {
namespace {

// Tokens that go through the layers together: SharedSteps takes as many as it has rows for.
constexpr size_t kDraft = 24;

// As the sampler takes it at temperature 0: ties to the lowest id.
int32_t greedy_token(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

Status append_kept(Sequence& sequence, std::span<const int32_t> answer, const Watch& watch,
                   size_t& n_kept) {
  for (size_t i = 0; i < answer.size() && answer[i] == greedy_token(sequence.logits()); ++i) {
    const auto rest = answer.subspan(i + 1);
    Sequence::Append one{&sequence, answer[i], watch};
    one.ahead = rest.first(std::min(rest.size(), kDraft));
    Sequence::append_each({&one, 1});
    BLEND_RETURN_IF_ERROR(std::move(one.status));
    n_kept = i + 1;
  }
  return Status::ok();
}

}  // namespace

Status make_exact(Fused& fused, std::span<const int32_t> answer, const Watch& watch,
                  size_t& n_kept) {
  n_kept = 0;
  if ((fused.info.flags & BLEND_FUSION_EXACT) == 0) {
    Sequence& old = *fused.sequence;
    BLEND_ASSIGN(auto exact, Sequence::create(old.shared_model(), old.capacity()));
    BLEND_RETURN_IF_ERROR(exact->append(old.tokens(), watch));
    fused.sequence = std::move(exact);
    fused.info.flags |= BLEND_FUSION_EXACT;
  }
  Status status = append_kept(*fused.sequence, answer, watch, n_kept);
  fused.sequence->forget_ahead();
  return status;
}

}  // namespace blend
