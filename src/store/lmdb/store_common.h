// StoreCommon: state shared by a store's object and its snapshots, which may outlast a call on it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "base/cancel.h"
#include "store/evict/touches.h"
#include "store/lmdb/environment.h"
#include "store/lmdb/use_index.h"
#include "store/ram/ram_tier.h"
#include "store/read/page_reader.h"

namespace blend {

// Thread-safe.
struct StoreCommon {
  std::shared_ptr<LmdbEnv> env;
  EventSink events;
  std::unique_ptr<PageReader> reader;  // null: layers are copied from the map
  bool cache_first = true;             // layers in the page cache are copied even with a reader
  std::atomic<uint64_t> hits{0}, misses{0}, damaged{0}, written{0}, write_errors{0};
  std::atomic<uint64_t> ram_hits{0};      // of the hits
  std::atomic<uint64_t> variant_hits{0};  // of the hits

  uint64_t ttl_us = 0;     // 0: nothing expires
  bool notes_use = false;  // a hit renews the chunk's stamp
  Touches touches;
  std::shared_ptr<RamTier> ram;              // null: none
  std::function<bool()> write_touches_soon;  // does not block; false: not possible. May be empty

  // Records a hit on a chunk that is on disk, if there is memory for that.
  void used(const Sha256& id) noexcept;
  // Whether the chunk was unused for longer than its time to live.
  bool expired(const UseIndex& index, const Sha256& id) const;

  ~StoreCommon() {
    // A forked child has none of the threads that the reader would wait for: leaked.
    if (env != nullptr && env->forked()) (void)reader.release();
  }
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
