// Advise: which storage holds chunks cheaply enough and reads them fast enough (CacheBlend
// section 5.1, "which storage").
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "control/cost_model.h"

namespace blend {

struct Storage {
  double bytes_per_s = 0;       // > 0
  double cost_per_gb_hour = 0;  // >= 0; a GB is 1e9 bytes
  double latency_s = 0;         // >= 0
};

struct StorageAdvice {
  double load_s = 0;
  double hidden_ratio = 0;  // the largest ratio that hides behind loading
  double ratio = 0;         // max(the one asked for, hidden_ratio)
  double total_s = 0;       // the longer of loading and computing at the ratio asked for
  double cost_per_hour = 0;
  bool hides = false;  // loading is no longer than computing at the ratio asked for: no delay
  bool slower_than_prefill = false;  // computing everything anew is sooner done
};

struct Advice {
  std::vector<StorageAdvice> storages;
  std::optional<size_t> cheapest;  // of those that add no delay; ties go to the faster one
  double recompute_s = 0;          // computing at the ratio asked for
};

// The prompt is `shape`; prefill_s is the full prefill of its rows.
Advice advise(const FuseShape& shape, double ratio, double prefill_s,
              std::span<const Storage> storages);

}  // namespace blend
