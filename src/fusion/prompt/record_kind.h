// The worst kind of stored record in a prompt: the one farthest from full prefill, among the chunks
// that are not exact.
#pragma once

#include <algorithm>

#include "blend/report.h"
#include "fusion/prompt/prompt.h"

namespace blend {

inline RecordUse record_in_use(const PromptSegment& s) {
  if (!s.reused()) return RecordUse::none;
  return s.exact ? RecordUse::exact : std::max(s.record, RecordUse::predecessor);
}

inline RecordUse record_in_use(const blend_segment_info& s) {
  const bool reused = s.source == BLEND_SOURCE_STORE || s.source == BLEND_SOURCE_PRECOMPUTED;
  if (!reused) return RecordUse::none;
  return s.exact != 0 ? RecordUse::exact
                      : std::max(static_cast<RecordUse>(s.record), RecordUse::predecessor);
}

// `segments`: PromptSegments or their report. None or exact: nothing is approximated.
template <typename Segments>
RecordUse worst_record(const Segments& segments) {
  auto worst = RecordUse::none;
  for (const auto& s : segments) worst = std::max(worst, record_in_use(s));
  return worst;
}

// Reused rows of chunks, exact ones included. The ratio is a share of these.
template <typename Segments>
uint64_t reused_rows(const Segments& segments) {
  uint64_t n = 0;
  for (const auto& s : segments) {
    const bool chunk = static_cast<uint32_t>(s.kind) == BLEND_SEGMENT_CHUNK;
    if (chunk && record_in_use(s) != RecordUse::none) n += s.n_rows;
  }
  return n;
}

}  // namespace blend
