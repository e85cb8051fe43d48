#include "fusion/request/options.h"

namespace blend {

std::vector<int32_t> prompt_head(std::span<const Segment> segments) {
  std::vector<int32_t> head;
  for (const Segment& s : segments) {
    if (s.kind == SegmentKind::chunk) return head;
    if (s.tokens.has_value()) head.insert(head.end(), s.tokens->begin(), s.tokens->end());
  }
  return {};
}

}  // namespace blend
