// Rows: which rows of a prompt a fuse computed at which layer, and what that costs.
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

struct ModelShape {
  uint64_t n_layers = 0;
  uint64_t d_model = 0;
  uint64_t q_dim = 0;   // n_heads * head_dim
  uint64_t kv_dim = 0;  // n_kv_heads * head_dim
  uint64_t d_ff = 0;
  uint64_t n_vocab = 0;
};
ModelShape shape_of(const blend_model_info& info);

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

// Floating-point operations of a prefill in which row i attends to the rows 0 .. i. A multiply-add
// counts as two. Per layer:
//   rows with K, V computed   x  2 * d_model * 2 kv_dim                          (K, V)
//   rows computed in full     x  2 * (2 * d_model * q_dim + 3 * d_model * d_ff)  (Q, O, gate, up,
//                                                                                down)
//   pairs (i, j <= i) of those rows i  x  4 * q_dim                              (QK', PV)
// and 2 * d_model * n_vocab for the logits of one row. Norms, RoPE, softmax, the deviation and the
// top-k are left out: they are linear in the rows with small factors.
double flops_of(const ModelShape& shape, const std::vector<LayerRows>& layers);

}  // namespace blend_cli
