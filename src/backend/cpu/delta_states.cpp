#include "backend/cpu/delta_states.h"

#include <utility>

namespace blend::cpu {

DeltaState DeltaStates::before(uint32_t n_rows) const {
  DeltaState best;
  for (const DeltaState& s : kept_) {
    if (s.buffer != nullptr && s.n_rows <= n_rows && s.n_rows >= best.n_rows) best = s;
  }
  return best;
}

DeltaState DeltaStates::take(uint32_t n_rows) {
  DeltaState best = before(n_rows);
  for (DeltaState& s : kept_) {
    if (best.buffer != nullptr && s.buffer == best.buffer) s = {};
  }
  return best;
}

void DeltaStates::keep(DeltaState start, DeltaState last) {
  kept_ = {std::move(start), std::move(last)};
}

void DeltaStates::changed(uint32_t first) {
  for (DeltaState& s : kept_) {
    if (s.n_rows > first) s = {};
  }
}

void DeltaStates::adopt(DeltaStates& from, uint32_t n_rows) {
  for (size_t i = 0; i < kept_.size(); ++i) {
    from.kept_[i].shared = true;
    kept_[i] = from.kept_[i].n_rows <= n_rows ? from.kept_[i] : DeltaState{};
  }
}

}  // namespace blend::cpu
