// What the record of a chunk after a certain predecessor should also have seen.
#pragma once

#include <cstddef>

#include "blend/precompute.h"

namespace blend_cli {

// Tokens of passages that stand before a predecessor, in all its prefills; 0: it says enough.
constexpr size_t tokens_before_predecessor(size_t n_predecessor) {
  if (n_predecessor >= BLEND_PRECEDED_TOKENS) return 0;
  return BLEND_PRECEDED_PASSES * (BLEND_PRECEDED_TOKENS - n_predecessor);
}

}  // namespace blend_cli
