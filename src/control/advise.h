// Advise: which storage holds chunks cheaply enough and reads them fast enough (CacheBlend
// section 5.1, "which storage"). It asks what the controller of a fuse asks (pass_choice.h), so
// that what is advised is what a fuse from that storage does.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "control/pass_choice.h"

namespace blend {

struct Storage {
  double bytes_per_s = 0;       // > 0
  double cost_per_gb_hour = 0;  // >= 0; a GB is 1e9 bytes
  double latency_s = 0;         // >= 0
};

// A prompt of chunks alone, none of them a prefix hit.
struct AdvisedPrompt {
  const ModelConfig* config = nullptr;
  MachineRates machine;
  uint64_t n_tokens = 0;
  uint64_t chunk_tokens = 0;  // of each chunk but the last
  double token_bytes = 0;     // of one token in one layer, as it is stored
  uint32_t check_layer = 0;   // layers before it are computed for all rows and not loaded

  // To be read.
  uint64_t load_bytes() const;
};

struct StorageAdvice {
  double load_s = 0;        // all layers of all chunks
  double total_s = 0;       // the pass at the ratio asked for, with all chunks loaded
  double hidden_ratio = 0;  // the largest that hides behind loading them
  double ratio = 0;         // that the controller chooses, with the one asked for as the least
  double expected_s = 0;    // of what it chooses
  double cost_per_hour = 0;
  bool hides = false;  // at the ratio asked for only the first layer is waited for: no delay
  bool slower_than_prefill = false;  // computing everything is done before it is loaded
};

struct Advice {
  std::vector<StorageAdvice> storages;
  std::optional<size_t> cheapest;  // of those that add no delay; ties go to the faster one
  double recompute_s = 0;          // computing at the ratio asked for
};

Advice advise(const AdvisedPrompt& prompt, double ratio, std::span<const Storage> storages);

}  // namespace blend
