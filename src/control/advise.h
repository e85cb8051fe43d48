// Advise: the cheapest storage that is fast enough for the chunks (CacheBlend section 5.1, "which
// storage"). It uses the controller of a fuse (pass_choice.h), so a fuse from that storage chooses
// what is advised here.
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

// A prompt that consists of chunks, none of them a prefix hit.
struct AdvisedPrompt {
  const ModelConfig* config = nullptr;
  MachineRates machine;
  uint64_t n_tokens = 0;
  uint64_t chunk_tokens = 0;  // of each chunk except the last
  double token_bytes = 0;     // of one token in one layer, as it is stored
  uint32_t check_layer = 0;   // layers before it are computed for all rows and not loaded

  // Bytes that are read from the storage.
  uint64_t load_bytes() const;
};

struct StorageAdvice {
  double load_s = 0;        // all layers of all chunks
  double total_s = 0;       // the pass at the given ratio, with all chunks loaded
  double hidden_ratio = 0;  // the largest whose recomputing takes no longer than loading
  double ratio = 0;         // the controller's choice, at least the given ratio
  double expected_s = 0;    // the time of that choice
  double cost_per_hour = 0;
  bool hides = false;  // no delay: at the given ratio the compute waits for the first layer only
  bool slower_than_prefill = false;  // loading takes longer than computing everything
};

struct Advice {
  std::vector<StorageAdvice> storages;
  std::optional<size_t> cheapest;  // of those that add no delay; ties go to the faster one
  double recompute_s = 0;          // computing at the given ratio
};

Advice advise(const AdvisedPrompt& prompt, double ratio, std::span<const Storage> storages);

}  // namespace blend
