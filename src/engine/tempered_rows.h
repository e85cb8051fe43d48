// TemperedRows: the rows of a sequence that are attended to with APE's temperature and scale.
//
// They are the rows whose K and V at a layer come from a chunk that was prefilled somewhere else: a
// row that was computed up to some layer is tempered only behind it. What is appended later attends
// to them in the same way.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"

namespace blend {

// A plain value; not thread-safe.
class TemperedRows {
 public:
  // What the rows have in common; those that are there take it too.
  void set(double temperature, double scale) {
    temperature_ = static_cast<float>(temperature);
    scale_ = static_cast<float>(scale);
  }
  // From `layer` on `row` is tempered; a row that is already stays as it is.
  void add(uint32_t row, uint32_t layer);

  bool empty() const { return n_rows_ == 0; }
  uint64_t n_rows() const { return n_rows_; }

  // What attention over the first n_slots rows has to know at `layer`; slots null: none of them is
  // tempered. Valid until the next call.
  Tempering at(uint32_t layer, uint32_t n_slots);

  // n_new rows that are not tempered in the place of the n_old from `first` on.
  void replace(uint64_t first, uint64_t n_old, uint64_t n_new);

 private:
  static constexpr uint32_t kNever = UINT32_MAX;

  float temperature_ = 1.0f;
  float scale_ = 1.0f;
  std::vector<uint32_t> from_layer_;  // of each row, kNever: not at all; none behind the last
  uint64_t n_rows_ = 0;               // that are tempered at some layer
  std::vector<uint8_t> slots_;        // of the last at()
};

}  // namespace blend
