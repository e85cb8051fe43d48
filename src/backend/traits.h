// BackendTraits: facts about a backend that its callers plan with.
#pragma once

#include <cstdint>

#include "backend/weight.h"

namespace blend {

struct BackendTraits {
  // Per element of the residual stream, K | V, logits and everything else that is kept or summed
  // up: f32.
  int64_t activation_bytes = 4;
  // Per element of rows that only feed a GEMM or attention: normed rows, Q, the feed-forward's
  // inner rows. Operations on them take either type.
  int64_t operand_bytes = 4;
  // Per element of a KV cache.
  int64_t cache_bytes = 4;
  // It decodes packed rows itself (StoredRun::packed), so that fewer bytes go to the device.
  bool decodes_packed = false;
  // Forms besides WeightForm::packed that load_matrix() takes.
  bool mapped_weights = false;
  bool int8_weights = false;
  // Rows that should pass through a layer's wide scratch at once.
  uint32_t block_rows = 512;
  // Most sequences with a row in one step; 1: they decode one by one. More only where a row's bits
  // do not depend on the other rows of its product.
  uint32_t step_rows = 1;
  // A row's bits depend on the number of rows in its product: then the products of every step,
  // even one of a single row, have step_rows rows; those after the step's own are unused.
  bool pads_steps = false;
  // Up to so many rows are computed in about the time of one, which is that of reading the weights
  // and of the launches. 0: every row costs.
  uint32_t free_rows = 0;

  bool takes(WeightForm form) const {
    return form == WeightForm::packed || (form == WeightForm::mapped && mapped_weights) ||
           (form == WeightForm::int8 && int8_weights);
  }
};

}  // namespace blend
