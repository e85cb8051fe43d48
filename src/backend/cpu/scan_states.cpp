#include "backend/cpu/scan_states.h"

#include <utility>

namespace blend::cpu {

ScanState ScanStates::before(uint32_t n_rows) const {
  ScanState best;
  for (const ScanState& s : kept_) {
    if (s.buffer != nullptr && s.n_rows <= n_rows && s.n_rows >= best.n_rows) best = s;
  }
  return best;
}

ScanState ScanStates::take(uint32_t n_rows) {
  ScanState best = before(n_rows);
  for (ScanState& s : kept_) {
    if (best.buffer != nullptr && s.buffer == best.buffer) s = {};
  }
  return best;
}

void ScanStates::keep(ScanState start, ScanState last) {
  kept_ = {std::move(start), std::move(last)};
}

void ScanStates::changed(uint32_t first) {
  for (ScanState& s : kept_) {
    if (s.n_rows > first) s = {};
  }
}

void ScanStates::adopt(ScanStates& from, uint32_t n_rows) {
  for (size_t i = 0; i < kept_.size(); ++i) {
    from.kept_[i].shared = true;
    kept_[i] = from.kept_[i].n_rows <= n_rows ? from.kept_[i] : ScanState{};
  }
}

}  // namespace blend::cpu
