#include "fusion/select/rows.h"

#include <algorithm>
#include <iterator>

namespace blend {

Rows classify_rows(const Prompt& prompt, bool choosing) {
  Rows rows;
  const uint32_t last = prompt.n_rows() - 1;
  for (const PromptSegment& s : prompt.segments) {
    if (s.reused() && s.kind == SegmentKind::chunk) rows.n_reused += s.n_rows;
    for (uint32_t row = s.first_row; row < s.first_row + s.n_rows; ++row) {
      if (!s.reused() || row == last) {
        rows.always.push_back(row);
      } else if (!s.exact && choosing) {
        rows.candidates.push_back(row);
      }
    }
  }
  return rows;
}

std::vector<uint32_t> merge_rows(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b) {
  std::vector<uint32_t> out;
  out.reserve(a.size() + b.size());
  std::merge(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(out));
  return out;
}

}  // namespace blend
