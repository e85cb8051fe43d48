// PromptLookup: what may come next, read off an earlier place where the text went the same way
// (prompt look-up decoding: Saxena 2023; LLMA, Yang et al. 2023). Answers over documents quote
// them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace blend {

struct LookupOptions {
  static constexpr uint32_t kMost = 16;
  uint32_t n_tokens = 0;  // most that are foretold; 0: none. <= kMost
  uint32_t match = 3;     // tokens that must read the same, >= 1
};

// Not thread-safe.
class PromptLookup {
 public:
  explicit PromptLookup(const LookupOptions& options) : options_(options) {}

  // At most `most` tokens that may follow `rows` and `next`: those behind the place, the latest of
  // several, where most tokens up to it read as the last ones do, and as many of them as read the
  // same. Fewer than match: none. Valid until the next call.
  std::span<const int32_t> foretell(std::span<const int32_t> rows, int32_t next, size_t most);

 private:
  const LookupOptions options_;
  std::vector<int32_t> found_;
};

}  // namespace blend
