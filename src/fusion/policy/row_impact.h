// For policies that use the statistics which chunks keep of their rows.
#pragma once

#include <cstddef>
#include <span>

#include "base/hash.h"
#include "fusion/policy/policy.h"

namespace blend {

// Calls fn(i, row statistics) for each candidate i. NOT_FOUND: a candidate's chunk has none.
template <typename Fn>
Status for_each_impact(const ChoicePoint& at, std::span<const uint32_t> candidates, const Fn& fn) {
  size_t i = 0;
  for (const PromptSegment& s : at.prompt.segments) {
    if (i < candidates.size() && candidates[i] < s.first_row + s.n_rows && !s.has_impact()) {
      return make_error(BLEND_E_NOT_FOUND,
                        "chunk %s was stored without its rows' context impact, as rows of another "
                        "engine are: precompute it again by a model that has its weights, or "
                        "choose the policy hkvd, or auto, which then takes hkvd",
                        to_hex(s.id).c_str());
    }
    for (; i < candidates.size() && candidates[i] < s.first_row + s.n_rows; ++i) {
      fn(i, s.chunk->meta().impact[candidates[i] - s.first_row]);
    }
  }
  return Status::ok();
}

}  // namespace blend
