#include "calibrate/recent_records.h"

namespace blend {

RecentRecords::Record RecentRecords::find(const Sha256& id) {
  const auto place = places_.find(id);
  if (place == places_.end()) return nullptr;
  order_.splice(order_.begin(), order_, place->second);
  return order_.front();
}

void RecentRecords::put(Record record) {
  const uint64_t bytes = record->data.bytes();
  if (bytes > budget_ || places_.count(record->meta.id) != 0) return;
  while (bytes_ + bytes > budget_) {
    bytes_ -= order_.back()->data.bytes();
    places_.erase(order_.back()->meta.id);
    order_.pop_back();
  }
  order_.push_front(std::move(record));
  try {
    places_.emplace(order_.front()->meta.id, order_.begin());
  } catch (...) {
    order_.pop_front();
    throw;
  }
  bytes_ += bytes;
}

}  // namespace blend
