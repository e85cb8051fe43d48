// Which kind of stored record a prompt leans on: of its chunks that are not exact, the one that is
// farthest from full prefill.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "blend/blend.h"
#include "fusion/prompt.h"

namespace blend {

// What a chunk was prefilled after, ascending from full prefill's own rows.
enum class RecordKind : uint32_t {
  none = 0,
  exact = 1,        // all that precedes it in the prompt
  predecessor = 2,  // the prompt's head and the chunk before it
  contextual = 3,   // the head and each of some other passages; their mean
  head = 4,         // the head
  alone = 5,        // nothing of the kind
};

inline RecordKind record_kind(const PromptSegment& s) {
  if (s.kind != SegmentKind::chunk || !s.reused()) return RecordKind::none;
  return s.exact ? RecordKind::exact : RecordKind::alone;
}

inline RecordKind record_kind(const blend_segment_info& s) {
  const bool reused = s.source == BLEND_SOURCE_STORE || s.source == BLEND_SOURCE_PRECOMPUTED;
  if (s.kind != BLEND_SEGMENT_CHUNK || !reused) return RecordKind::none;
  return s.exact != 0 ? RecordKind::exact : RecordKind::alone;
}

// Of PromptSegments or of their account. None or exact: nothing is approximated.
template <typename Segments>
RecordKind worst_record(const Segments& segments) {
  auto worst = RecordKind::none;
  for (const auto& s : segments) worst = std::max(worst, record_kind(s));
  return worst;
}

}  // namespace blend
