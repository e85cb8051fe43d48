// LateErrors: errors of work that outlives its call, kept for callers who ask later.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <new>
#include <utility>

#include "base/hash.h"
#include "base/status.h"

namespace blend {

// Not thread-safe: its owner's lock guards it.
class LateErrors {
 public:
  static constexpr size_t kMost = 1024;

  // Remembers that the work of `id` failed; beyond kMost the oldest is forgotten. Where there
  // is no memory for that, take_first() still tells that something failed.
  void add(const Sha256& id, const Status& status) noexcept {
    forget(id);
    try {
      if (first_.is_ok()) first_ = Status(status);  // whole, or not at all
      of_.emplace_back(id, status);
      if (of_.size() > kMost) of_.pop_front();
    } catch (const std::bad_alloc&) {
      if (first_.is_ok()) first_ = Status::out_of_memory();
    }
  }
  // The work of `id` begins again.
  void forget(const Sha256& id) noexcept {
    std::erase_if(of_, [&](const Entry& e) { return e.first == id; });
  }
  // OK: it did not fail, or has been forgotten.
  Status of(const Sha256& id) const {
    const auto it =
        std::find_if(of_.begin(), of_.end(), [&](const Entry& e) { return e.first == id; });
    return it == of_.end() ? Status::ok() : it->second;
  }
  // The first that was added since the last call.
  Status take_first() { return std::exchange(first_, Status::ok()); }

 private:
  using Entry = std::pair<Sha256, Status>;
  std::deque<Entry> of_;  // oldest first; usually empty, so it is searched
  Status first_;
};

}  // namespace blend
