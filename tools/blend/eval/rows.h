// Rows: which rows of a prompt a fuse computed at which layer.
//
// A row's place in the layers x rows picture follows from three sets (CacheBlend section 4.3):
//   always      question, new text, misses computed inline, the prompt's last row
//   candidates  rows of reused chunks that are not prefix hits; they are computed up to the check
//               layer, where the selected ones are found among them (with a policy that measures
//               nothing: not at all). With several check layers only the number of rows that each
//               let through is known: evenly spread rows stand for them in the layers between
//   stored      everything else: taken from the store at every layer
// After the last layer only the prompt's last row is read, so it alone goes through attention and
// the feed-forward layer there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "blend/blend.hpp"

namespace blend_cli {

struct LayerRows {
  std::vector<uint32_t> kv;    // rows whose K and V were computed, ascending
  std::vector<uint32_t> full;  // those that also went through attention and feed-forward, ascending
};

// Copy of a fusion's facts, kept after it is closed.
struct RowTrace {
  struct Segment {
    uint32_t kind = 0;  // BLEND_SEGMENT_*
    bool exact = false;
    uint32_t first_row = 0;
    uint32_t n_rows = 0;
  };
  std::vector<Segment> segments;
  std::vector<uint32_t> selected;
  std::vector<float> deviation;  // [n_rows]; 0 where it was not measured
  std::vector<LayerRows> layers;
  uint32_t n_rows = 0;
};
RowTrace trace_of(const blendpp::Fusion& fusion);

}  // namespace blend_cli
