// PromptLookup: drafts tokens from an earlier match of the current suffix (prompt look-up decoding:
// Saxena 2023; LLMA, Yang et al. 2023). Answers over documents quote them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace blend {

struct LookupOptions {
  static constexpr uint32_t kMost = 16;
  uint32_t n_tokens = 0;  // most draft tokens; 0: none. <= kMost
  uint32_t match = 3;     // least length of a match, >= 1
};

// Not thread-safe.
class PromptLookup {
 public:
  explicit PromptLookup(const LookupOptions& options) : options_(options) {}

  // At most `most` draft tokens after `rows` and `next`: those that follow the longest earlier
  // match of the last tokens, the latest of equals, and at most as many as match.
  // With a match shorter than options.match: none. Valid until the next call.
  std::span<const int32_t> draft(std::span<const int32_t> rows, int32_t next, size_t most);

 private:
  const LookupOptions options_;
  std::vector<int32_t> found_;
};

}  // namespace blend
