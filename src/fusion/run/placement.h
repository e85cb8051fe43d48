// Placement: what became of the stored rows of one layer, whoever put them into the cache.
#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "fusion/correct/corrector.h"
#include "fusion/load/layer_loader.h"

namespace blend {

struct Placement {
  LayerLoad load;
  uint64_t rows_placed = 0;
  uint64_t place_ns = 0;

  // The drift correction, where it was due.
  bool corrected = false;
  uint64_t correct_ns = 0;    // part of place_ns
  uint64_t n_corrected = 0;   // rows, of all layers so far
  uint64_t n_judging = 0;     // rows that the correction was guarded by
  DriftShare share = {0, 0};  // of it, taken at this layer
  double mean_share = 0;      // of all layers so far
  double correct_flops = 0;

  // After corrector.at() of the layer, which took `ns`.
  void add_correction(const Corrector& corrector, uint64_t ns) {
    corrected = true;
    correct_ns += ns;
    n_corrected = corrector.n_rows();
    n_judging = corrector.judges().size();
    if (n_corrected > 0) share = corrector.share();
    mean_share = corrector.mean_share();
    correct_flops += corrector.flops();
  }
};

}  // namespace blend
