// StoreCommon: what the parts of one store share: its environment, its log, its counters and
// its tier in memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/log.h"
#include "base/status.h"
#include "store/lmdb/environment.h"
#include "store/ram/ram_tier.h"

namespace blend {

// Thread-safe.
struct StoreCommon {
  std::shared_ptr<LmdbEnv> env;
  Log log;
  bool read_only = false;
  std::shared_ptr<RamTier> ram;  // null: none
  std::atomic<uint64_t> hits{0}, misses{0}, damaged{0}, written{0}, write_errors{0};
  std::atomic<uint64_t> ram_hits{0};      // of the hits
  std::atomic<uint64_t> variant_hits{0};  // of the hits

  // FORKED, READ_ONLY.
  Status check_writable() const;
  // Tells the log that `what` had to be made again.
  void rebuilt(const char* what) const noexcept {
    log.write(BLEND_LOG_INFO, BLEND_EVENT_STORE_REBUILT, "store", [&](LogRecord& record) {
      record.message = std::string("the ") + what + " of store '" + env->path() +
                       "' were damaged or of an older version, and have been made again from its "
                       "chunks";
      record.add("path", env->path());
    });
  }
  // Counts a damaged chunk, which is a miss, and tells the log.
  void damage(const Status& status) {
    damaged.fetch_add(1, std::memory_order_relaxed);
    log.write(BLEND_LOG_WARNING, "store", status);
  }
};

}  // namespace blend
