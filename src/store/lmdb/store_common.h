// StoreCommon: what the parts of one store share: its environment, its event sink, its counters and
// its tier in memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "base/threads/cancel.h"
#include "store/lmdb/environment.h"
#include "store/ram/ram_tier.h"

namespace blend {

// Thread-safe.
struct StoreCommon {
  std::shared_ptr<LmdbEnv> env;
  EventSink events;
  bool read_only = false;
  std::shared_ptr<RamTier> ram;  // null: none
  std::atomic<uint64_t> hits{0}, misses{0}, damaged{0}, written{0}, write_errors{0};
  std::atomic<uint64_t> ram_hits{0};      // of the hits
  std::atomic<uint64_t> variant_hits{0};  // of the hits

  // FORKED, READ_ONLY.
  Status check_writable() const;
  void event(int32_t code, const std::string& message) const {
    if (events) events(code, message);
  }
  // Counts a damaged chunk and tells the event sink.
  void damage(const Status& status) {
    damaged.fetch_add(1, std::memory_order_relaxed);
    event(status.code(), status.message());
  }
};

}  // namespace blend
