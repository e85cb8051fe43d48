// TemperedRows: the rows of a sequence that are attended to with APE's temperature and scale.
//
// They are the rows whose K and V at a layer come from a chunk that was prefilled somewhere else: a
// row computed up to some layer is tempered only after it. Rows appended later attend to them in
// the same way.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/attention.h"

namespace blend {

// A plain value; not thread-safe.
class TemperedRows {
 public:
  // Sets the values that all tempered rows share, present ones included.
  void set(double temperature, double scale) {
    temperature_ = static_cast<float>(temperature);
    scale_ = static_cast<float>(scale);
  }
  // From `layer` on `row` is tempered; a row that is already stays as it is.
  void add(uint32_t row, uint32_t layer);

  bool empty() const { return n_rows_ == 0; }
  uint64_t n_rows() const { return n_rows_; }

  // Tempering of the first n_slots rows at `layer`, for attention; slots null: none of them is
  // tempered. Valid until the next call.
  Tempering at(uint32_t layer, uint32_t n_slots);

  // Replaces the n_old rows from `first` on with n_new rows that are not tempered.
  void replace(uint64_t first, uint64_t n_old, uint64_t n_new);

 private:
  static constexpr uint32_t kNever = UINT32_MAX;

  float temperature_ = 1.0f;
  float scale_ = 1.0f;
  std::vector<uint32_t> from_layer_;  // of each row, kNever: not at all; up to the last one
  uint64_t n_rows_ = 0;               // that are tempered at some layer
  std::vector<uint8_t> slots_;        // of the last at()
};

}  // namespace blend
