#include "capi/answer.h"

#include <new>
#include <utility>

namespace blend::capi {

void begin_answer(blend_fusion& fusion, const blend_store* store) noexcept {
  if (store == nullptr || store->checks == nullptr) return;
  try {
    fusion.answer = store->checks->mark(fusion.fused);
    if (fusion.answer.has_value()) fusion.checks = store->checks;
  } catch (const std::bad_alloc&) {
    fusion.answer.reset();
  }
}

void note_answer(blend_fusion& fusion) noexcept {
  if (!fusion.answer.has_value()) return;
  const Sequence& sequence = *fusion.fused.sequence;
  try {
    fusion.answer->note(sequence.n_rows(), sequence.logits());
  } catch (const std::bad_alloc&) {
    fusion.answer.reset();
  }
}

void end_answer(blend_fusion& fusion) noexcept {
  if (!fusion.answer.has_value()) return;
  try {
    const ThreadCap cap(fusion.n_threads);
    const std::shared_ptr<FidelityChecks> checks = fusion.checks.lock();
    if (checks != nullptr) checks->add(std::move(*fusion.answer), *fusion.fused.sequence);
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): one check less
  }
  fusion.answer.reset();
}

void end_whole_answer(blend_fusion& fusion, bool stopped) noexcept {
  if (fusion.answer.has_value() && (stopped || fusion.answer->full())) end_answer(fusion);
}

}  // namespace blend::capi
