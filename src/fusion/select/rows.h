// The rows of a prompt, by how a fuse treats them.
//
//   exact      stored K, V equal the fresh ones: never computed
//   always     question, new text, misses computed inline, the prompt's last row: all layers
//   candidate  reused, not exact: computed up to the layer at which a policy drops them
#pragma once

#include <cstdint>
#include <vector>

#include "fusion/prompt/prompt.h"

namespace blend {

struct Rows {
  std::vector<uint32_t> always;      // ascending
  std::vector<uint32_t> candidates;  // ascending; empty if no policy chooses
  uint64_t n_reused = 0;  // rows of reused chunks, exact ones included: a ratio is a share of them
};

// `choosing`: a policy will choose among the candidates; otherwise every stored row stays stored.
Rows classify_rows(const Prompt& prompt, bool choosing);

// Rows of two ascending, disjoint lists; ascending.
std::vector<uint32_t> merge_rows(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b);

}  // namespace blend
