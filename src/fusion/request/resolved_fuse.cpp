#include "fusion/request/resolved_fuse.h"

namespace blend {

double ResolvedFuse::mean_ratio() const {
  if (own_schedule) return blend::mean_ratio(schedule, n_layers);
  return choice.has_value() ? choice->ratio : ratio;
}

bool ResolvedFuse::has_drift_for_schedule() const {
  return drift != nullptr && first_measured(schedule)->layer == drift->check_layer();
}

uint32_t ResolvedFuse::first_stored_layer(bool corrects) const {
  if (needs.probe()) return 0;  // nothing waits for fresh K, V
  const uint32_t first = schedule.front().layer;
  // Up to the first check layer every row keeps its fresh K, V; a measurement there needs the
  // stored ones too.
  const bool measures = corrects || !needs.nothing();
  return measures || first == 0 ? first : first + 1;
}

}  // namespace blend
