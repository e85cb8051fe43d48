#include "fusion/resolve/agreement.h"

#include "fusion/prompt/record_kind.h"
#include "fusion/resolve/fidelity_book.h"

namespace blend {

std::optional<double> agreeing_ratio(FidelityBook* book, const ModelDescription& model,
                                     const RatioRequest& asked, const ResolvedFuse& fuse,
                                     const Prompt& prompt) {
  const std::optional<double> target = asked.agreement;
  const bool chooses = !fuse.schedule.empty() && !fuse.own_schedule;
  if (!target.has_value() || !chooses) return std::nullopt;
  const RecordUse record = worst_record(prompt.segments);
  if (record <= RecordUse::exact) return std::nullopt;
  const uint64_t n_rows = reused_rows(prompt.segments);
  const FidelityKey key(model.fingerprint(), static_cast<uint32_t>(fuse.policy), record, n_rows);
  const double usual = book == nullptr ? kLadder[key.first_rung()] : book->ratio(key, *target);
  return share_of(usual, n_rows);
}

}  // namespace blend
