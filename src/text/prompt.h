// A prompt: its text, and the segments of tokens that it is fused from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "blend/fuse.h"

namespace blend::text {

// Tokens of one segment.
struct Segment {
  uint32_t kind = 0;  // BLEND_SEGMENT_*
  std::vector<int32_t> tokens;
  size_t stored = SIZE_MAX;  // the index of a stored document, which has no tokens
};

struct Prompt {
  std::string text;  // as rendered; a stored document is an object replacement character
  std::vector<Segment> segments;
  // Before the first document stands no text of the host but what is the same in many prompts.
  bool stable_head = true;
};

}  // namespace blend::text
