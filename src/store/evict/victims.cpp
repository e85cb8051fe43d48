#include "store/evict/victims.h"

#include <algorithm>

namespace blend {
namespace {

constexpr size_t kChances = 16;  // second chances of one eviction, so that it stays short

}  // namespace

std::optional<Restamp> renewal(const Touches& touches, const Sha256& id, const UseRecord& record) {
  const Touches::Touch touch = touches.find(id);
  if (touch.hits == 0 || touch.stamp_us <= record.stamp_us) return std::nullopt;
  return Restamp{id, record, touch.stamp_us, record.uses + touch.hits};
}

void VictimChooser::offer(const Sha256& id, const UseRecord& record) {
  if (const auto need = policy_.need(id); need.has_value()) {
    hinted_.push_back({{id, record}, *need});
    return;
  }
  if (policy_.renewed_by_use()) {
    if (const auto renewed = renewal(touches_, id, record); renewed.has_value()) {
      renewed_.push_back(*renewed);
      return;
    }
  }
  if (policy_.spares(record) && spared_.size() < kChances) {
    spared_.push_back({id, record});
  } else {
    take({id, record});
  }
}

void VictimChooser::choose() {
  size_t n = 0;
  while (n < spared_.size() && !done()) take(spared_[n++]);
  for (; n < spared_.size(); ++n) {
    const UseRecord& record = spared_[n].record;
    restamps_.push_back({spared_[n].id, record, next_stamp_us(), record.uses / 2});
  }
  // Recently hit chunks are evicted before hinted ones.
  n = 0;
  for (; n < renewed_.size() && !done(); ++n) take({renewed_[n].id, renewed_[n].old});
  restamps_.insert(restamps_.end(), renewed_.begin() + static_cast<ptrdiff_t>(n), renewed_.end());
  // Among hinted chunks the one needed last goes first, and none inside the window that is
  // needed sooner than the newcomer.
  std::stable_sort(hinted_.begin(), hinted_.end(), [](const Hinted& a, const Hinted& b) {
    return a.need.distance > b.need.distance;
  });
  size_t chances = policy_.renewed_by_use() ? kChances : 0;
  for (const auto& [chunk, need] : hinted_) {
    const bool later = newcomer_.has_value() && need.distance > newcomer_->distance;
    if (!done() && (!need.in_window || later)) {
      take(chunk);
      continue;
    }
    hinted_bytes_ += chunk.record.footprint;
    // New stamps, or every later walk would meet them first.
    if (chances == 0) continue;
    --chances;
    restamps_.push_back({chunk.id, chunk.record, next_stamp_us(), chunk.record.uses});
  }
}

}  // namespace blend
