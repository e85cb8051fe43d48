// Rounding: what a fuse would read from chunks that a store keeps with a codec that rounds.
#pragma once

#include <cstdint>
#include <span>

#include "calibrate/memory_store.h"

namespace blend {

struct RoundedSize {
  uint64_t bytes = 0;     // of the rounded layers, encoded
  uint64_t elements = 0;  // of their K and V
};

// Puts every chunk of `exact` into `out`, its layer l rounded by `codec` with steps[l] times the
// codec's own scale (rans), unchanged where that is 0. steps: [n_layers]. NUMERIC: the codec cannot
// keep a value.
Result<RoundedSize> put_rounded(const MemoryStore& exact, Codec codec, std::span<const float> steps,
                                MemoryStore& out);

}  // namespace blend
