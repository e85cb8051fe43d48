#include "eval/rows.h"

#include <algorithm>
#include <iterator>

namespace blend_cli {
namespace {

std::vector<uint32_t> merged(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b) {
  std::vector<uint32_t> out;
  std::merge(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(out));
  return out;
}

// `rows` and as many of `others`, evenly spread, as make `n` rows.
std::vector<uint32_t> evenly_filled(const std::vector<uint32_t>& rows,
                                    const std::vector<uint32_t>& others, uint64_t n) {
  std::vector<uint32_t> free;
  std::set_difference(others.begin(), others.end(), rows.begin(), rows.end(),
                      std::back_inserter(free));
  const size_t wanted = n > rows.size() ? std::min<size_t>(n - rows.size(), free.size()) : 0;
  std::vector<uint32_t> more;
  for (size_t i = 0; i < wanted; ++i) more.push_back(free[i * free.size() / wanted]);
  return merged(rows, more);
}

}  // namespace

RowTrace trace_of(const blendpp::Fusion& fusion) {
  const blendpp::FusionReport info = fusion.report();
  RowTrace trace;
  trace.n_rows = static_cast<uint32_t>(info.n_rows);
  const auto selected = fusion.selected();
  trace.selected.assign(selected.begin(), selected.end());
  const auto deviation = fusion.deviation();
  trace.deviation.assign(deviation.begin(), deviation.end());

  // Layer 0: chosen before it, so that the other rows were never computed.
  const bool late_choice = info.n_check_layers > 0 && info.check_layer > 0;
  std::vector<uint32_t> always;
  std::vector<uint32_t> candidates;
  for (size_t i = 0; i < info.n_segments; ++i) {
    const blendpp::SegmentInfo segment = fusion.segment(i);
    const auto first = static_cast<uint32_t>(segment.first_row);
    const auto n = static_cast<uint32_t>(segment.n_rows);
    trace.segments.push_back({segment.kind, segment.exact != 0, first, n});
    const bool reused =
        segment.source == BLEND_SOURCE_STORE || segment.source == BLEND_SOURCE_PRECOMPUTED;
    for (uint32_t row = first; row < first + n; ++row) {
      if (!reused || row + 1 == trace.n_rows) {
        always.push_back(row);
      } else if (late_choice && segment.exact == 0) {
        candidates.push_back(row);
      }
    }
  }
  const std::vector<uint32_t> early = merged(always, candidates);
  const std::vector<uint32_t> late = merged(always, trace.selected);
  const bool gradual = info.n_check_layers > 1;
  for (uint32_t layer = 0; layer < info.n_layers; ++layer) {
    LayerRows rows;
    // The check layer has K and V of all candidates; after it only the selected rows go on.
    rows.kv = layer <= info.check_layer ? early : late;
    rows.full = layer < info.check_layer ? early : late;
    if (gradual) {
      // Between two check layers it is known how many rows went on, not which.
      const blendpp::LayerInfo counts = fusion.layer(layer);
      rows.kv = evenly_filled(late, candidates, counts.rows_kv);
      rows.full = evenly_filled(late, candidates, counts.rows_full);
    }
    if (layer + 1 == info.n_layers) rows.full = {trace.n_rows - 1};
    trace.layers.push_back(std::move(rows));
  }
  return trace;
}

}  // namespace blend_cli
