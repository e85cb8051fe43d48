#include "engine/prompt_lookup.h"

#include <algorithm>

namespace blend {

std::span<const int32_t> PromptLookup::draft(std::span<const int32_t> rows, int32_t next,
                                             size_t most) {
  found_.clear();
  most = std::min<size_t>(most, options_.n_tokens);
  if (most == 0) return {};
  const size_t n = rows.size();
  // A longer match would not allow more draft tokens.
  const size_t longest = std::max<size_t>(options_.n_tokens, options_.match);
  size_t best = 0, after = 0;  // length of the longest match; the position after it
  for (size_t end = n; end-- > 0 && best < longest;) {
    if (rows[end] != next) continue;
    size_t same = 1;
    while (same < longest && same <= end && rows[end - same] == rows[n - same]) ++same;
    if (same <= best) continue;
    best = same;
    after = end + 1;
  }
  if (best < options_.match) return {};
  // Past `next` come the draft tokens themselves: a text that repeats itself.
  for (size_t i = after; found_.size() < std::min(best, most); ++i) {
    found_.push_back(i < n ? rows[i] : i == n ? next : found_[i - n - 1]);
  }
  return found_;
}

}  // namespace blend
