#include "fusion/result/edit.h"

#include <algorithm>

namespace blend {
namespace {

// The new positions of rows when n_new rows replace [first, first + n_old).
struct Shift {
  uint64_t first = 0, n_old = 0, n_new = 0;

  uint64_t end() const { return first + n_old; }
  bool erased(uint64_t row) const { return row >= first && row < end(); }
  // The new position of a row that stays, or of a segment's first row.
  uint64_t begin_of(uint64_t row) const {
    if (row >= end()) return row - n_old + n_new;
    return row < first ? row : first + n_new;
  }
  // The new position of a segment's end.
  uint64_t end_of(uint64_t row) const {
    if (row <= first) return row;
    return row > end() ? row - n_old + n_new : first;
  }
};

std::vector<uint32_t> move_rows(const std::vector<uint32_t>& rows, const Shift& shift) {
  std::vector<uint32_t> out;
  out.reserve(rows.size());
  for (const uint32_t row : rows) {
    if (!shift.erased(row)) out.push_back(static_cast<uint32_t>(shift.begin_of(row)));
  }
  return out;
}

// New rows inside the prompt get 0; rows after it (decoded ones) have no deviation at all.
std::vector<float> move_deviation(const std::vector<float>& deviation, const Shift& shift) {
  const uint64_t n = deviation.size();
  if (shift.first >= n) return deviation;
  const auto at = deviation.begin() + static_cast<int64_t>(shift.first);
  const auto behind = deviation.begin() + static_cast<int64_t>(std::min(shift.end(), n));
  std::vector<float> out(deviation.begin(), at);
  out.resize(shift.first + shift.n_new, 0.0f);
  out.insert(out.end(), behind, deviation.end());
  return out;
}

std::vector<blend_segment_info> move_segments(std::vector<blend_segment_info> segments,
                                              const Shift& shift,
                                              const std::vector<uint32_t>& selected) {
  for (blend_segment_info& s : segments) {
    const uint64_t end = shift.end_of(s.first_row + s.n_rows);
    s.first_row = shift.begin_of(s.first_row);
    s.n_rows = end > s.first_row ? end - s.first_row : 0;
    const auto from = std::lower_bound(selected.begin(), selected.end(), s.first_row);
    const auto to = std::lower_bound(from, selected.end(), s.first_row + s.n_rows);
    s.n_rows_selected = static_cast<uint64_t>(to - from);
  }
  return segments;
}

}  // namespace

Status edit(Fused& fused, uint64_t first, uint64_t n_old, std::span<const int32_t> tokens,
            const Watch& watch) {
  if (n_old == 0 && tokens.empty()) return fused.sequence->replace(first, 0, {}, watch);
  const uint64_t rows = fused.sequence->n_rows();
  // Makes the new report first, because nothing may fail once the rows have moved. A bad span gets
  // none; the sequence refuses it.
  const bool sound = first <= rows && n_old <= rows - first;
  const Shift shift = sound ? Shift{first, n_old, tokens.size()} : Shift{};
  std::vector<uint32_t> selected = move_rows(fused.selected, shift);
  std::vector<float> deviation = move_deviation(fused.deviation, shift);
  std::vector<blend_segment_info> segments = move_segments(fused.segments, shift, selected);
  BLEND_RETURN_IF_ERROR(fused.sequence->replace(first, n_old, tokens, watch));
  fused.selected = std::move(selected);
  fused.deviation = std::move(deviation);
  fused.segments = std::move(segments);
  fused.info.flags |= BLEND_FUSION_EDITED;
  // Later rows still contain what they took from the old ones.
  fused.info.flags &= ~BLEND_FUSION_EXACT;
  return Status::ok();
}

}  // namespace blend
