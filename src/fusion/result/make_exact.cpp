#include "fusion/result/make_exact.h"

#include <algorithm>

#include "engine/sampler.h"

namespace blend {
namespace {

// Tokens in one pass through the layers; SharedSteps takes as many of them as it has rows for.
constexpr size_t kDraft = 24;

// Whether nothing came from a store: all rows are full prefill's already.
bool computed_all(const blend_fusion_report& info) {
  constexpr uint32_t kChanged = BLEND_FUSION_EDITED | BLEND_FUSION_RESTORED;
  return info.n_rows_reused == 0 && info.n_rows_exact == 0 && info.n_rows_resident == 0 &&
         info.n_rows_tempered == 0 && (info.flags & kChanged) == 0;
}

Status append_kept(Sequence& sequence, std::span<const int32_t> answer, const Watch& watch,
                   size_t& n_kept) {
  BLEND_ASSIGN(Sampler greedy, Sampler::create({}));
  for (size_t i = 0; i < answer.size() && answer[i] == greedy.sample(sequence.logits()); ++i) {
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
  uint32_t& flags = fused.info.flags;
  if ((flags & BLEND_FUSION_EXACT) == 0 && !computed_all(fused.info)) {
    Sequence& old = *fused.sequence;
    BLEND_ASSIGN(auto exact, Sequence::create(old.shared_model(), old.capacity()));
    BLEND_RETURN_IF_ERROR(exact->append(old.tokens(), watch));
    fused.sequence = std::move(exact);
    flags &= ~BLEND_FUSION_CHECKED;  // its answer is not a fused one any more
  }
  flags |= BLEND_FUSION_EXACT;
  Status status = append_kept(*fused.sequence, answer, watch, n_kept);
  fused.sequence->forget_ahead();
  return status;
}

}  // namespace blend
